"""The parts of the result document: the run, the step, and the rows of its tables."""
