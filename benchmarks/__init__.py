"""Benchmarks: time and memory compared with other tools, and accuracy. Not installed."""
