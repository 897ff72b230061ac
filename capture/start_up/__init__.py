"""What a process does from its start to the end of its first training step."""
