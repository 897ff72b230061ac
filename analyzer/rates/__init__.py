"""What work took on devices of a kind: the tables that `benchmarks/rates` makes, and sizes between those of a table."""
