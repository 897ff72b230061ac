"""What a fix saves: replayed steps, bounds from what was measured."""
