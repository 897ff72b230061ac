"""Device memory over time, and what it holds at its peak."""
