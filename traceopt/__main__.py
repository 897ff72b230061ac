"""Makes `python -m traceopt` the same as `traceopt`."""

from traceopt.cli import main

main()
