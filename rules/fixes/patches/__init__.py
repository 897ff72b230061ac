"""Patches for findings, made from the user's source files."""
