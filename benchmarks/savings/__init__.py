"""The proof of the savings: what a fix gives back by the trace alone, beside what it gave back when it was made."""
