"""How much of a change of the step time is noise: judged by runs where a side has several, else by steps.

Two runs of the same code differ by more than the steps of one run tell: clocks, neighbours on the machine, memory
layout. So each run counts as one observation, its median step. By how much runs differ is estimated from those there
are, together with an assumption that weighs as much as four more: with one run a side it stands alone, with many it is
nothing (a moderated t-statistic: Smyth 2004, "Linear models and empirical Bayes methods").

All is done on logarithms, because noise is in proportion to the step, and with Student's t, because runs are few. The
interval is one of 99 %: a gate looks at every change, and may cry wolf at one in a hundred.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.percentiles import median
from traceopt.result.comparison import StepChange, StepVerdict

ASSUMED_SPREAD = 0.01  # standard deviation of runs of the same code, beyond what their steps make of it
ASSUMED_FREEDOM = 4  # degrees of freedom that the assumption counts for
WIDE_SHARE = 0.5  # an interval that leaves room for so large a change says nothing
FEW_STEPS = 8  # degrees of freedom; below, a median absolute deviation says too little
MOST_AUTOCORRELATION = 0.9
LEAST_US, MOST_US = 1e-3, 1e12  # what a step may take: documents are untrusted
MOST_LOGARITHM = 30.0  # of a change that is shown: 1e13 times as long

# Student's t, two-sided 99 %, for 1 to 20 degrees of freedom (NIST/SEMATECH e-Handbook, 1.3.6.7.2).
_T99 = (
    63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169,
    3.106, 3.055, 3.012, 2.977, 2.947, 2.921, 2.898, 2.878, 2.861, 2.845,
)  # fmt: skip
_NORMAL99 = 2.576

F8 = npt.NDArray[np.float64]
Spread = tuple[float, int]  # the variance of the median of a run, and its degrees of freedom

_ONE_STEP = "Each side has one step, which tells nothing of how much steps vary."
_FEW_STEPS = "There are too few steps and runs, which vary too much, to tell it from noise."


def step_change(
    base: Sequence[Sequence[float]], head: Sequence[Sequence[float]], *, in_turn: bool = False
) -> StepChange:
    """Compares runs, each a sequence of step times in microseconds; not all steps are alike, so medians are taken.

    `in_turn`: the runs of both sides, as many, were recorded by turns, so that what slowed one slowed the other; then
    the differences of pairs tell. What is no time of a step is left out, and runs without a step.
    """
    sides = [[np.array(steps) for run in side if (steps := _sound(run))] for side in (base, head)]
    if not all(sides):
        return StepChange("not_measured", reason="A side has no steps that could be compared.")
    medians = [[math.log(median(steps)) for steps in side] for side in sides]
    before, after = (fmean(side) for side in medians)
    change = after - before
    in_turn = in_turn and len(base) == len(head) == len(sides[0]) == len(sides[1]) > 1
    measured = _of_pairs(*medians) if in_turn else _of_sides(*medians)
    of_a_run, freedom = _with_assumption(measured, _by_steps(sides[0] + sides[1]))
    if not freedom:
        return StepChange("unclear", _us(before), _us(after), _share(change), reason=_ONE_STEP)
    half = t99(freedom) * math.sqrt(of_a_run * sum(1 / len(side) for side in sides))
    verdict: StepVerdict = "within_noise" if abs(change) <= half else "slower" if change > 0 else "faster"
    wide = verdict == "within_noise" and _share(half) >= WIDE_SHARE
    several = len(sides[0]) + len(sides[1]) > 2
    return StepChange(
        "unclear" if wide else verdict,
        _us(before),
        _us(after),
        _share(change),
        low_share=_share(change - half),
        high_share=_share(change + half),
        unseen_share=_share(half),
        run_to_run_share=_share(math.sqrt(_pooled_variance(*medians))) if several else None,
        in_turn=in_turn,
        reason=_FEW_STEPS if wide else None,
    )


def differ(base: Sequence[float], head: Sequence[float]) -> bool | None:
    """Whether a quantity with one value a run differs beyond what runs vary by; None with one run a side."""
    freedom = len(base) + len(head) - 2
    if freedom < 1 or not base or not head:
        return None
    error = math.sqrt(_pooled_variance(base, head) * (1 / len(base) + 1 / len(head)))
    return abs(fmean(head) - fmean(base)) > t99(freedom) * error


def t99(freedom: float) -> float:
    """Student's t of a two-sided 99 % interval: from the table, between its rows by the reciprocal."""
    if freedom > len(_T99):
        return _NORMAL99 + (_T99[-1] - _NORMAL99) * len(_T99) / freedom
    degrees = np.arange(len(_T99), 0, -1)
    return float(np.interp(1 / max(freedom, 1.0), 1 / degrees, _T99[::-1]))


def _of_sides(base: Sequence[float], head: Sequence[float]) -> Spread:
    """Both sides are taken to vary alike, so that a side may have one run."""
    freedom = len(base) + len(head) - 2
    return (_pooled_variance(base, head) if freedom else 0.0), freedom


def _of_pairs(base: Sequence[float], head: Sequence[float]) -> Spread:
    """What both runs of a pair share is not in their difference, which has the variance of two."""
    return variance([after - before for before, after in zip(base, head, strict=True)]) / 2, len(base) - 1


def _with_assumption(measured: Spread, by_steps: Spread | None) -> Spread:
    """The measured variance of a run and the assumed one, by their degrees of freedom; 0 where there are none."""
    squares, freedom = measured[0] * measured[1], measured[1]
    if by_steps is not None:
        assumed = min(ASSUMED_FREEDOM, by_steps[1])
        squares += assumed * (by_steps[0] + ASSUMED_SPREAD**2)
        freedom += assumed
    return (squares / freedom if freedom else 0.0), freedom


def _by_steps(runs: Sequence[F8]) -> Spread | None:
    """How well the steps fix the median of a run; all runs are taken to spread alike. None where no run has two steps.

    The spread is the median absolute deviation, which a few slow steps do not move; of few steps the standard one.
    """
    deviations = [np.log(steps) - math.log(median(steps)) for steps in runs if len(steps) > 1]
    if not deviations:
        return None
    together = np.concatenate(deviations)
    freedom = len(together) - len(deviations)
    if freedom >= FEW_STEPS:
        scale = 1.4826 * median(np.abs(together)) * math.sqrt(len(together) / freedom)
    else:
        scale = math.sqrt(float(np.sum(together**2)) / freedom)
    independent = _independent(deviations)
    errors = [scale**2 * (math.pi / 2 if len(run) > 2 else 1) / max(1.0, len(run) * independent) for run in runs]
    return fmean(errors), freedom


def _independent(deviations: Sequence[F8]) -> float:
    """To what part of their number steps amount, where each resembles the one before it (lag-1 autocorrelation).

    An estimate from few steps is too small by about (1 + 3 r) / n (Marriott and Pope 1954).
    """
    total = sum(float(np.sum(run**2)) for run in deviations)
    if total <= 0:
        return 1.0
    measured = sum(float(np.sum(run[1:] * run[:-1])) for run in deviations) / total
    count = fmean(len(run) for run in deviations)
    alike = min(max(measured + (1 + 3 * measured) / count, 0.0), MOST_AUTOCORRELATION)
    return (1 - alike) / (1 + alike)


def _pooled_variance(base: Sequence[float], head: Sequence[float]) -> float:
    squares = sum((value - fmean(side)) ** 2 for side in (base, head) for value in side)
    return squares / (len(base) + len(head) - 2)


def _sound(steps: Sequence[float]) -> list[float]:
    return [us for us in steps if LEAST_US <= us <= MOST_US]


def _us(logarithm: float) -> float:
    return round(math.exp(logarithm), 3)


def _share(logarithm: float) -> float:
    return round(math.expm1(min(logarithm, MOST_LOGARITHM)), 6)
