"""Shared by the rules that advise a larger batch."""

from __future__ import annotations

from traceopt.analyzer.facts import Facts
from traceopt.result.words.effort_and_risk import Risk


def larger_batch_risk(facts: Facts) -> Risk | None:
    """None: the rule's own, which is that of training."""
    return Risk.LATENCY if facts.infers else None
