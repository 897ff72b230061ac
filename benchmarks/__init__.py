"""Time and memory beside other tools. Not installed."""
