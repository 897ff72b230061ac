"""Memory snapshots of PyTorch's CUDA allocator: who holds the memory, what grows, and why an allocation failed."""
