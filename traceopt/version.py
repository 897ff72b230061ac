"""The version of traceopt, in a module of its own: nothing has to import the public package for it."""

__version__ = "0.1.0"
