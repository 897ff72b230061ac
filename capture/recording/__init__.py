"""Recording: profiler sessions and the trace files that they write."""
