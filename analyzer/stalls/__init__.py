"""Why the device or the host did nothing: idle gaps, host syncs, the profiler itself."""
