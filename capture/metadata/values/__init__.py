"""The values in a run's tensors and data sets, as far as they decide how fast it is."""
