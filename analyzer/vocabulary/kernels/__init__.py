"""What GPU kernels are called: their kind, type and use of Tensor Cores, from their names."""
