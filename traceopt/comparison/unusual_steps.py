"""The unusual steps that the typical steps of a comparison leave out, and the change of all steps with them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, geometric_mean

from traceopt.comparison.noise import sound
from traceopt.result.comparison import AllSteps, StepChange
from traceopt.result.document import Result

MANY_SHARE = 0.25  # of the steps of a side: an answer without so many is not about the run
OTHER_ANSWER = 0.02  # of the step of BASE: all steps change by so much more or less than typical ones,
OTHER_SHARE = 0.1  # and by this share of the larger change


def typical_steps_us(result: Result) -> list[float]:
    """The durations of the typical steps; indices that do not fit are ignored, because documents are untrusted."""
    durations = result.step.per_step_us
    return [durations[index] for index in result.step.typical_steps if 0 <= index < len(durations)]


def all_steps(base: Sequence[Result], head: Sequence[Result], step: StepChange) -> AllSteps | None:
    """None if no side has unusual steps, or the typical steps of `step` are not compared."""
    unusual = [sum(map(_unusual, side)) for side in (base, head)]
    if step.change_share is None or not any(unusual):
        return None
    means = [_means_us(side) for side in (base, head)]
    if not all(means):
        return None
    before_us, after_us = map(geometric_mean, means)
    counts = [sum(len(result.step.per_step_us) for result in side) for side in (base, head)]
    change = after_us / before_us - 1
    many = any(left_out >= MANY_SHARE * steps for left_out, steps in zip(unusual, counts, strict=True) if steps)
    return AllSteps(
        counts[0],
        counts[1],
        unusual[0],
        unusual[1],
        round(before_us, 3),
        round(after_us, 3),
        round(change, 6),
        decisive=many or _another_answer(change, step.change_share),
    )


def _another_answer(change: float, typical: float) -> bool:
    return abs(change - typical) >= max(OTHER_ANSWER, OTHER_SHARE * max(abs(change), abs(typical)))


def _unusual(result: Result) -> int:
    """How many steps are unusual. Steps of another serving phase are not."""
    if result.serving is not None and len(result.serving.phases) > 1:
        return 0
    return max(0, len(result.step.per_step_us) - len(typical_steps_us(result)))


def _means_us(side: Sequence[Result]) -> list[float]:
    """The mean of all plausible steps of each run that has any."""
    return [fmean(steps) for result in side if (steps := sound(result.step.per_step_us))]
