"""How good `traceopt tune` and the loss check of `traceopt try` are."""
