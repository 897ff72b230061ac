"""What the work was: matmuls, attention, copies, collectives, FLOP."""
