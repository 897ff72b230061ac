"""Dumps of the flight recorder: the last collectives of every rank, recorded by PyTorch itself."""
