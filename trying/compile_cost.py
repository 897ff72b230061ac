"""What compiling costs at the start of a run, and how many steps win it back."""

from __future__ import annotations

import math
from statistics import median

from msgspec.structs import replace

from traceopt.result.trial import TriedChange
from traceopt.trying.rounds import Rounds


def with_compile_cost(row: TriedChange, rounds: Rounds, run_steps: int | None) -> TriedChange:
    """The row of a change that compiles. It is not kept if it is known that the run has too few steps to pay it back.

    `run_steps`: of a whole run of the script; None: not known.
    """
    pairs = zip(rounds.before, rounds.after, strict=True)
    costs_us = [a.extra_us - b.extra_us for b, a in pairs if a.extra_us is not None and b.extra_us is not None]
    if row.verdict != "keep" or not row.gain_us or not costs_us or median(costs_us) <= 0:
        return row
    steps = math.ceil(median(costs_us) / row.gain_us)
    text = f"compiling takes {median(costs_us) / 1e6:.1f} s, which {steps:,} steps win back"
    if run_steps is not None and run_steps < steps:
        return replace(row, verdict="no_gain", reason=f"{text}; the run has {run_steps:,}")
    return replace(row, reason="; ".join(filter(None, [text, row.reason])))
