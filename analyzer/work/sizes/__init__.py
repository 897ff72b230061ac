"""Operators that are found by the sizes of the tensors that they work on."""
