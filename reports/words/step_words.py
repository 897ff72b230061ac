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


def share_range(low: float, high: float) -> str:
    """ "35–78%"; empty if both look the same."""
    texts = percent(low), percent(high)
    return "" if texts[0] == texts[1] else f"{texts[0].rstrip('%')}–{texts[1]}"


def saved_about(result: Result, saving: Saving) -> str:
    """ "150 ms per step (36%, likely 27–45%)"."""
    step_us = saving.est_us / saving.share if saving.share > 0 else 0.0
    likely = share_range(saving.low_us / step_us, saving.high_us / step_us) if step_us > 0 else ""
    text = saved(result, saving)
    return f"{text[:-1]}, likely {likely})" if likely else text


def saved(result: Result, saving: Saving) -> str:
    """ "150 ms per step (36%)", "150 ms of the recording (36%)"."""
    return f"{estimated(saving.est_us)} {of_each_step(result)} ({percent(saving.share)})"
