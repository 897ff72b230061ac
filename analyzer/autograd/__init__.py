"""What autograd records, and what of it is for nothing."""
