"""Tables of kernels, operators, matmuls and modules."""
