"""The names that PyTorch and vendors use in traces, and what they mean. One table per file."""
