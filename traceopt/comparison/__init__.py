"""Compares two sides of a change: what is noise and what is not, and the gates of a pull request."""
