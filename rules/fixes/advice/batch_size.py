"""Shared by the rules that advise a larger batch."""

from __future__ import annotations

from traceopt.analyzer.facts import Facts


def larger_batch_risk(facts: Facts) -> str | None:
    """None: the rule's own, which is that of training."""
    if facts.trains:
        return None
    if facts.infers:
        return "With a larger batch each request takes longer"
    return "A larger batch may change convergence, or the time of a request"
