"""Arithmetic on plain NumPy arrays: intervals, groups, percentiles. Knows nothing of traces."""
