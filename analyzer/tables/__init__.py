"""What a trace is in memory: columns of NumPy arrays, one table per kind of event."""
