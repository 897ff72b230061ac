"""One recording: profiler sessions and the trace files they leave."""
