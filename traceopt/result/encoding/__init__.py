"""How documents become bytes and text, and are read again."""
