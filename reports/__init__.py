"""One renderer a format, all fed by the result document."""
