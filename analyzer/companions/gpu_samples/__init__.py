"""Samples of the GPUs that `traceopt run` took while the command ran."""
