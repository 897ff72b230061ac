"""Base classes that several rules share."""
