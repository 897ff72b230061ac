"""The parts of the result document that come from files beside the trace: one module for each kind."""
