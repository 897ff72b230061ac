"""What compiling costs at the start of a run, and how many steps win it back."""

from __future__ import annotations

import math
from statistics import median

from msgspec.structs import replace

from traceopt.result.trial import TriedChange
from traceopt.trying.changes import Seen
from traceopt.trying.rounds import Rounds


def with_compile_cost(row: TriedChange, rounds: Rounds, seen: Seen | None, run_steps: int | None) -> TriedChange:
    """The row of a change that compiles. It is not kept if it is known that the run has too few steps to pay it back.

    `seen`: in a search, whose runs have compiled anew. `run_steps`: of a whole run of the script; None: not known.
    """
    costs_us = [after.extra_us - before.extra_us for before, after in zip(rounds.before, rounds.after, strict=True)]
    cost_us = seen.extra_us if seen is not None else median(costs_us)
    if row.verdict != "keep" or not row.gain_us or cost_us <= 0:
        return row
    steps = math.ceil(cost_us / row.gain_us)
    text = f"compiling takes {cost_us / 1e6:.1f} s, which {steps:,} steps win back"
    if run_steps is not None and run_steps < steps:
        return replace(row, verdict="no_gain", reason=f"{text}; the run has {run_steps:,}")
    return replace(row, reason="; ".join(filter(None, [text, row.reason])))
