"""Fixes: the values that they recommend, the arguments of frameworks, and patches of the user's source."""
