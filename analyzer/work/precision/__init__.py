"""Numbers that are wider than they need to be, or change their type to and fro."""
