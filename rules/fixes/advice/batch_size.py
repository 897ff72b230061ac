"""Shared by the rules that advise a larger batch."""

from __future__ import annotations

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING
from traceopt.result.words.effort_and_risk import Risk


def takes_batches(facts: Facts) -> bool:
    """Whether the steps are known to take batches, so that these can be larger: a loader feeds them, or requests do.
    Full-batch training has none.
    """
    recorded = facts.captured.training_loader is not None
    return recorded or facts.infers or len(facts.host.rows_of(DATA_LOADING)) > 0


def larger_batch_risk(facts: Facts) -> Risk | None:
    """None: the rule's own, which is that of training."""
    return None if facts.trains else Risk.LATENCY if facts.infers else Risk.MEMORY
