"""A trace in memory: columns of NumPy arrays, one table per kind of event."""
