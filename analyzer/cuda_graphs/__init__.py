"""Kernels that CUDA graphs replay: the operators and lines that captured them."""
