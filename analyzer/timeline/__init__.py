"""What ran when and where, and which call launched it."""
