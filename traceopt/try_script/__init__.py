"""`traceopt try` and `traceopt tune`: scripts that are recorded, changed and measured in copies of their source."""
