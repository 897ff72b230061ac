"""What `traceopt try` changes while a script starts, without a change of its source."""
