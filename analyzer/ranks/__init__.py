"""Several ranks together: summaries, comparison, joint replay."""
