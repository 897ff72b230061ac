"""What less, other or merged work saves: precision, layouts, fused attention, backward passes, operators on the CPU."""
