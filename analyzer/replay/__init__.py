"""What-if replay: re-times the dependency graph of the recorded steps with a fix applied."""
