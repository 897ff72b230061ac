"""`python -m traceopt` is `traceopt`."""

from traceopt.cli import main

main()
