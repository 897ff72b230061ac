"""What-if replay: the dependency graph of the recorded steps, re-timed with a fix applied."""
