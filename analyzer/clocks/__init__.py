"""Times that cannot be: found, and corrected where it is certain what they should be."""
