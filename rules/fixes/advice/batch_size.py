"""Shared by the rules that advise a larger batch."""

from __future__ import annotations

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING
from traceopt.result.words.effort_and_risk import Risk
from traceopt.rules.fixes.advice.memory import peak_share

FULL = 0.9  # of the device's memory at the peak


def takes_batches(facts: Facts) -> bool:
    """Whether the steps are known to take batches, so that these can be larger: a loader feeds them, or requests do.
    Full-batch training has none.
    """
    recorded = facts.captured.training_loader is not None
    return recorded or facts.infers or len(facts.host.rows_of(DATA_LOADING)) > 0


def memory_is_full(facts: Facts) -> bool:
    """Whether a larger batch is known to run out of memory. A serving engine takes all of it in advance."""
    known = facts.memory is not None and facts.device.memory_bytes and facts.serving_engine is None
    return bool(known) and peak_share(facts) >= FULL


def larger_batch_risk(facts: Facts) -> Risk | None:
    """None: the rule's own, which is that of training. No risk if no larger batch fits, and so none is advised."""
    if memory_is_full(facts):
        return Risk.NONE
    return None if facts.trains else Risk.LATENCY if facts.infers else Risk.MEMORY
