"""Compares predicted savings with measured ones: what the trace alone predicts, and what the fix really saves."""
