"""What charts say and draw, in whichever format: parts of ranks, texts of steps, shapes of the roofline."""
