"""What to set: numbers and settings that fixes recommend."""
