"""The version of traceopt. It has its own module, so that nothing has to import the public package for it."""

__version__ = "0.1.0"
