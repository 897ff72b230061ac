"""Every recorded step in the parts of the breakdown, for the strip of steps in the report."""

from __future__ import annotations

from traceopt.analyzer.facts import Facts
from traceopt.result.rows import StepPart, StepSeries
from traceopt.result.words.rounding import us

MOST_STEPS = 400


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
        StepPart(part.key, facts.label(part), part.busy, [us(ns) for ns in spent[chosen].tolist()])
        for part, spent in facts.of_every_step.parts_by_step.items()
        if spent[chosen].any()
    ]
    return StepSeries(first, shown, steps.names[chosen], parts, peak_memory_bytes=_peak_memory(facts)[chosen])


def _peak_memory(facts: Facts) -> list[int | None]:
    """Bytes in each recorded step. Empty on a CPU-only run, whose totals start with the recording."""
    if facts.memory is None or not facts.has_gpu:
        return []
    peaks = facts.memory.peak_by_step(facts.recorded_steps)
    return [peak if peak >= 0 else None for peak in peaks.tolist()]
