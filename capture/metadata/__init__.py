"""What a trace's key `traceopt` holds beside the events."""
