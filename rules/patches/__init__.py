"""Patches for findings where the user's source is at hand."""
