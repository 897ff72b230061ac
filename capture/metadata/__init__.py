"""The contents of a trace's key `traceopt`, next to the events."""
