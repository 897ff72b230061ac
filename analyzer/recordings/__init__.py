"""Combines the files of one rank into one trace."""
