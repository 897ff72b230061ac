"""The sections about the whole run: its parts, its ranks, its cost."""
