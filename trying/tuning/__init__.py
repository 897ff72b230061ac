"""`traceopt tune`: rounds of recording and trying, and values that no trace can tell."""
