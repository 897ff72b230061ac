"""How much of a change of the step time is noise, estimated from the runs, or from the steps if a side has one run.

Two runs of the same code differ more than the steps of one run suggest, because of clocks, other jobs on the machine
and memory layout. So each run counts as one observation: its typical step. The run-to-run noise is estimated from the
runs, together with an assumption that weighs as much as four runs. With one run per side only the assumption is left;
with many it hardly matters (a moderated t-statistic: Smyth 2004, "Linear models and empirical Bayes methods").
For runs in turn, the assumption weighs as much as one pair: `traceopt try` stops as soon as the interval is narrow, and
so it would often stop because two pairs happen to be alike, on a machine that is noisier than assumed.

Everything is computed on logarithms, because noise is proportional to the step, and with Student's t, because there are
few runs. Of ten runs in turn or more, a tenth at each end is left out: other programs disturb a few rounds much more
than the others. The interval is a 99 % interval: a gate checks every change, so one false alarm in a hundred is
acceptable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.percentiles import median
from traceopt.result.comparison import StepChange, StepVerdict

ASSUMED_SPREAD = 0.01  # standard deviation of runs of the same code, on top of the spread of their steps
ASSUMED_FREEDOM = 4  # degrees of freedom that the assumption counts for
ASSUMED_FREEDOM_OF_PAIRS = 1
TRIMMED_SHARE = 0.1  # of the pairs, at each end: a few rounds that other programs disturbed would widen the interval
WIDE_SHARE = 0.5  # an interval that allows such a large change says nothing
NO_INTERVAL_SHARE = 1.0  # an interval that reaches twice the change, or half of it, is not stated
FEW_STEPS = 8  # degrees of freedom; with fewer, a median absolute deviation is unreliable
MOST_AUTOCORRELATION = 0.9
LEAST_US, MOST_US = 1e-3, 1e12  # plausible step times: documents are untrusted
MOST_LOGARITHM = 30.0  # of a change: 1e13 times as long

# Student's t, two-sided 99 %, for 1 to 20 degrees of freedom (NIST/SEMATECH e-Handbook, 1.3.6.7.2).
_T99 = (
    63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169,
    3.106, 3.055, 3.012, 2.977, 2.947, 2.921, 2.898, 2.878, 2.861, 2.845,
)  # fmt: skip
_NORMAL99 = 2.576

F8 = npt.NDArray[np.float64]
Spread = tuple[float, int]  # the variance of the typical step of a run, and its degrees of freedom

_ONE_STEP = "Each side has one step, which does not show how much steps vary."
_FEW_STEPS = (
    "There are too few steps and runs, and they vary too much, to tell the change from noise. "
    "Record 20 steps or more (traceopt run --preset long), or several runs."
)


def step_change(
    base: Sequence[Sequence[float]], head: Sequence[Sequence[float]], *, in_turn: bool = False
) -> StepChange:
    """Compares the typical steps of runs; each run is a sequence of the times of its typical steps in microseconds.

    `in_turn`: the runs of both sides were recorded alternately, so what slowed one also slowed the other. Then the
    differences within pairs count. Implausible step times and runs without steps are ignored.
    """
    sides = [[np.array(steps) for run in side if (steps := sound(run))] for side in (base, head)]
    if not all(sides):
        return StepChange("not_measured", reason="One side has no steps to compare.")
    means = [[math.log(fmean(steps)) for steps in side] for side in sides]
    in_turn = in_turn and len(base) == len(head) == len(sides[0]) == len(sides[1]) > 1
    runs = _usual_pairs(*means) if in_turn else means
    before, after = (fmean(side) for side in runs)
    change = after - before
    measured = _of_pairs(*means) if in_turn else _of_sides(*means)
    assumed_freedom = ASSUMED_FREEDOM_OF_PAIRS if in_turn else ASSUMED_FREEDOM
    of_a_run, freedom = _with_assumption(measured, _by_steps(sides[0] + sides[1]), assumed_freedom)
    if not freedom:
        return StepChange("unclear", _us(before), _us(after), _share(change), reason=_ONE_STEP)
    half = t99(freedom) * math.sqrt(of_a_run * sum(1 / len(side) for side in runs))
    verdict: StepVerdict = "within_noise" if abs(change) <= half else "slower" if change > 0 else "faster"
    wide = verdict == "within_noise" and _share(half) >= WIDE_SHARE
    stated = _share(half) < NO_INTERVAL_SHARE
    several = len(sides[0]) + len(sides[1]) > 2
    return StepChange(
        "unclear" if wide else verdict,
        _us(before),
        _us(after),
        _share(change),
        low_share=_share(change - half) if stated else None,
        high_share=_share(change + half) if stated else None,
        unseen_share=_share(half) if stated else None,
        run_to_run_share=_share(math.sqrt(_pooled_variance(*means))) if several else None,
        in_turn=in_turn,
        reason=_FEW_STEPS if wide else None,
    )


def differ(base: Sequence[float], head: Sequence[float]) -> bool | None:
    """Whether a metric with one value per run differs beyond run-to-run noise; None with one run per side."""
    freedom = len(base) + len(head) - 2
    if freedom < 1 or not base or not head:
        return None
    error = math.sqrt(_pooled_variance(base, head) * (1 / len(base) + 1 / len(head)))
    return abs(fmean(head) - fmean(base)) > t99(freedom) * error


def times_differ(base: Sequence[float], head: Sequence[float]) -> bool:
    """Whether the time of the same work differs beyond run-to-run noise: with one run per side, the assumed one."""
    several = differ(base, head)
    if several is not None:
        return several
    before, after = fmean(base), fmean(head)
    if min(before, after) <= 0:
        return before != after
    return abs(math.log(after / before)) > t99(ASSUMED_FREEDOM) * ASSUMED_SPREAD * math.sqrt(2)


def steps_differ(base: Sequence[float], head: Sequence[float]) -> bool | None:
    """Whether a part of the steps of one run differs from that of another beyond noise; None without two steps each.

    Noise is the spread of the steps, and the assumed noise from run to run. What every step of one side has and no step
    of the other is gone, however much it varies.
    """
    sides = [np.array(base), np.array(head)]
    if min(map(len, sides)) < 2:
        return None
    if any(not one.any() and other.all() for one, other in (sides, sides[::-1])):
        return True
    independent = _independent([side - np.mean(side) for side in sides])
    error = sum(
        float(np.var(side, ddof=1)) / max(1.0, len(side) * independent) + (ASSUMED_SPREAD * float(np.mean(side))) ** 2
        for side in sides
    )
    freedom = min(len(base) + len(head) - 2, ASSUMED_FREEDOM)
    return abs(fmean(head) - fmean(base)) > t99(freedom) * math.sqrt(error)


def t99(freedom: float) -> float:
    """Student's t of a two-sided 99 % interval, interpolated in the reciprocal of the degrees of freedom."""
    if freedom > len(_T99):
        return _NORMAL99 + (_T99[-1] - _NORMAL99) * len(_T99) / freedom
    degrees = np.arange(len(_T99), 0, -1)
    return float(np.interp(1 / max(freedom, 1.0), 1 / degrees, _T99[::-1]))


def _of_sides(base: Sequence[float], head: Sequence[float]) -> Spread:
    """Assumes that both sides vary equally, so that a side may have one run."""
    freedom = len(base) + len(head) - 2
    return (_pooled_variance(base, head) if freedom else 0.0), freedom


def _usual_pairs(base: Sequence[float], head: Sequence[float]) -> list[list[float]]:
    """Both sides without the pairs with the largest and the smallest differences."""
    pairs = sorted(zip(base, head, strict=True), key=lambda pair: pair[1] - pair[0])
    left_out = int(TRIMMED_SHARE * len(pairs))
    return [list(side) for side in zip(*pairs[left_out : len(pairs) - left_out], strict=True)]


def _of_pairs(base: Sequence[float], head: Sequence[float]) -> Spread:
    """From the differences of pairs, which lack what both runs share, and have twice the variance of a run.

    For the mean of the usual pairs: the pairs that are left out count as much as the outermost ones that are kept
    (Yuen 1974, "The two-sample trimmed t for unequal population variances").
    """
    differences = np.sort(np.subtract(head, base))
    left_out = int(TRIMMED_SHARE * len(differences))
    kept = len(differences) - 2 * left_out
    nearest = np.clip(differences, differences[left_out], differences[left_out + kept - 1])
    return float(np.var(nearest, ddof=1)) * (len(differences) - 1) / (kept - 1) / 2, kept - 1


def _with_assumption(measured: Spread, by_steps: Spread | None, assumed_freedom: int) -> Spread:
    """The measured and the assumed variance of a run, weighted by their degrees of freedom; 0 if there are none."""
    squares, freedom = measured[0] * measured[1], measured[1]
    if by_steps is not None:
        assumed = min(assumed_freedom, by_steps[1])
        squares += assumed * (by_steps[0] + ASSUMED_SPREAD**2)
        freedom += assumed
    return (squares / freedom if freedom else 0.0), freedom


def _by_steps(runs: Sequence[F8]) -> Spread | None:
    """How precisely the steps determine the typical step of a run, assuming that all runs vary equally.

    None if no run has two steps. The spread is the median absolute deviation, which a few outlier steps do not change,
    or the standard deviation if there are few steps. A median has a larger error than a mean,
    because steps have longer tails than a normal distribution.
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
    """The effective number of steps as a share of their number, as each may resemble the one before it.

    From the lag-1 autocorrelation r, which is underestimated by about (1 + 3 r) / n (Marriott and Pope 1954).
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


def sound(steps: Sequence[float]) -> list[float]:
    """The plausible step times."""
    return [us for us in steps if LEAST_US <= us <= MOST_US]


def _us(logarithm: float) -> float:
    return round(math.exp(logarithm), 3)


def _share(logarithm: float) -> float:
    return round(math.expm1(min(logarithm, MOST_LOGARITHM)), 6)
