"""Traces in other viewers: one step cut out of a trace, a trace served for Perfetto, a log folder in TensorBoard."""
