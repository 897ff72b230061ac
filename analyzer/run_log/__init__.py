"""Reads what `traceopt run` wrote into the header of a trace: settings, step times, data loaders."""
