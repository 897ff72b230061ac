"""Sections about what ran when: the timeline, its spans, the flame graph, the series of steps."""
