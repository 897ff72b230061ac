"""Every recorded step in the parts of the breakdown, and which of them evaluated or saved a checkpoint."""

from __future__ import annotations

import re

import numpy as np

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.schema import I8
from traceopt.result.sections.work_rows import StepPart, StepSeries

MOST_STEPS = 10_000
DIGITS = 5  # of the time of a part: more would only make a long document longer
_NUMBER_IN_RUN = re.compile(r"ProfilerStep#(\d+)")  # `traceopt run` numbers steps as its ledger does


def step_series(facts: Facts) -> StepSeries | None:
    """At most MOST_STEPS consecutive steps with the example step among them; None if there is only one step, or no part
    of a step is known.
    """
    steps = facts.recorded_steps
    if steps.count < 2 or facts.quality.lost_all_gpu_events:
        return None
    shown = int(steps.typical_rows[facts.steps.example])
    first = max(0, min(shown - MOST_STEPS // 2, steps.count - MOST_STEPS))
    chosen = slice(first, first + MOST_STEPS)
    parts = [
        StepPart(part.key, facts.label(part), part.busy, [_short_us(ns) for ns in spent[chosen].tolist()])
        for part, spent in facts.of_every_step.parts_by_step.items()
        if spent[chosen].any()
    ]
    names, ledger = steps.names[chosen], facts.captured.ledger
    return StepSeries(
        first,
        shown,
        names,
        parts,
        peak_memory_bytes=_peak_memory(facts)[chosen],
        evaluated=[] if ledger is None else _steps_with(ledger.eval_ns, names),
        saved=[] if ledger is None else _steps_with(ledger.save_ns, names),
    )


def _short_us(ns: int) -> float:
    return float(f"{ns / 1e3:.{DIGITS}g}") if ns else 0.0


def _steps_with(spent_ns: I8, names: list[str]) -> list[int]:
    """Places in `names` of the steps in which the run spent time on something."""
    spending = set(np.flatnonzero(spent_ns).tolist())
    found = ((place, _NUMBER_IN_RUN.fullmatch(name)) for place, name in enumerate(names))
    return [place for place, number in found if number is not None and int(number[1]) in spending]


def _peak_memory(facts: Facts) -> list[int | None]:
    """Bytes in each recorded step. Empty on a CPU-only run, whose totals start with the recording."""
    if facts.memory is None or not facts.has_gpu:
        return []
    peaks = facts.memory.peak_by_step(facts.recorded_steps)
    return [peak if peak >= 0 else None for peak in peaks.tolist()]
