"""`traceopt try`: makes changes in a copy of the source, runs them and measures what they gain."""
