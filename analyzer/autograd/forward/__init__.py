"""What forward passes compute that can be computed in less time."""
