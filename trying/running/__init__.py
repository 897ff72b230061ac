"""One script that runs: its processes, the signals that end it, the clocks of its GPUs."""
