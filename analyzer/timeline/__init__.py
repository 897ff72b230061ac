"""What ran when, where, and which call launched it."""
