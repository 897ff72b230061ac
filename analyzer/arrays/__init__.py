"""Arithmetic on plain NumPy arrays: intervals, groups, percentiles. Independent of traces."""
