"""Everything measured in one trace. Rules read facts, never events."""

from __future__ import annotations

from traceopt.analyzer.facts.memory import MemoryFacts


class Facts(MemoryFacts, frozen=True, dict=True):
    """The facts of one trace, each computed from the tables on first use."""
