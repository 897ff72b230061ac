"""Commands that start a script: record it, try and tune changes, find a commit."""
