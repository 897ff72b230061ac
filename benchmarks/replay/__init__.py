"""Tests of the replay: waits that are hidden and inferred again, known delays that are removed, real fixes."""
