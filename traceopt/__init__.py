"""traceopt reads PyTorch profiler traces and says what the bottleneck is and how to fix it."""

__version__ = "0.1.0"
