"""The parent process of `traceopt run`: starts the command and tells how the recording went."""
