"""The parent process of `traceopt run`: starts the command and reports how the recording went."""
