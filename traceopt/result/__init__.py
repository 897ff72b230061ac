"""The documents that all output is rendered from, and how their values are spelled."""
