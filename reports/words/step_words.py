"""The step in labels and sentences. A recording without step marks counts as one step, but nobody calls it that."""

from __future__ import annotations

from traceopt.result.document import Result
from traceopt.result.finding import Saving
from traceopt.result.quantities import estimated, percent


def step_noun(result: Result) -> str:
    """What the times are of: "step", or "recording" without step marks."""
    return "recording" if result.step.source == "window" else "step"


def per_step(result: Result) -> str:
    """What follows a unit: " per step", or nothing without step marks."""
    return "" if result.step.source == "window" else " per step"


def of_each_step(result: Result) -> str:
    """What follows a saving: "per step", or "of the recording" without step marks."""
    return "of the recording" if result.step.source == "window" else "per step"


def saved(result: Result, saving: Saving) -> str:
    """ "150 ms per step (36%)", "150 ms of the recording (36%)"."""
    return f"{estimated(saving.est_us)} {of_each_step(result)} ({percent(saving.share)})"
