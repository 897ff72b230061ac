"""The names that PyTorch and vendors use in traces, and what each one means. One table a file."""
