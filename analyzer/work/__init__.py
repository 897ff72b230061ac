"""What the work was: matmuls, attention, convolutions, copies, FLOP."""
