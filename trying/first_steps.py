"""What a change costs once, in the first steps, such as compiling; and how many steps win it back."""

from __future__ import annotations

import math

from msgspec.structs import replace

from traceopt.result.trial import TriedChange
from traceopt.trying.changes import Seen
from traceopt.trying.measured_run import MeasuredRun
from traceopt.trying.rounds import Rounds

NOTICEABLE_US = 1e6


def with_first_steps(row: TriedChange, rounds: Rounds, seen: Seen | None, run_steps: int | None) -> TriedChange:
    """The row of a change that was kept, with that cost. It is not kept if it is known that the run is too short to win
    it back.

    The cost is what every round had. `seen`: in a search whose runs have compiled anew. `run_steps`: of a whole run of
    the script; None: not known.
    """
    if row.verdict != "keep" or not row.gain_us:
        return row
    costs_us = [_once_us(after) - _once_us(before) for before, after in zip(rounds.before, rounds.after, strict=True)]
    cost_us = max(min(costs_us), seen.extra_us if seen is not None else 0.0)
    if cost_us < NOTICEABLE_US:
        return row
    steps = math.ceil(cost_us / row.gain_us)
    text = f"its first steps take {cost_us / 1e6:.1f} s longer, which {steps:,} steps win back"
    if run_steps is not None and run_steps < steps:
        return replace(row, verdict="no_gain", reason=f"{text}; the run has {run_steps:,}")
    return replace(row, reason="; ".join(filter(None, [text, row.reason])))


def _once_us(run: MeasuredRun) -> float:
    return run.start_us + run.extra_us
