"""How much of a change of the step time is noise: judged by runs where a side has several, else by steps.

Two runs of the same code differ by more than the steps of one run tell: clocks, neighbours on the machine, memory
layout. So with several runs a side each run counts as one observation, its median step. With one run a side only the
steps can be asked, which are few and resemble their neighbours; a change that two runs of the same code may show as
well is then not called.

All is done on logarithms, because noise is in proportion to the step, and with Student's t, because runs are few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from traceopt.comparison.document import StepChange

UNMEASURED_RUN_TO_RUN = 0.05  # two runs of the same code differ by less in 95 of 100, where nobody has measured it
FEW_STEPS = 8  # below, a median absolute deviation says too little and the standard deviation is taken
MOST_AUTOCORRELATION = 0.9
LEAST_US, MOST_US = 1e-3, 1e12  # what a step may take: documents are untrusted
MOST_LOGARITHM = 30.0  # of a change that is shown: 1e13 times as long

# Student's t, two-sided 95 %, for 1 to 20 degrees of freedom (NIST/SEMATECH e-Handbook, 1.3.6.7.2).
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip
_NORMAL95 = 1.960

_ONE_STEP = "A side has one step, which tells nothing of how much steps vary."


@dataclass(frozen=True, slots=True)
class _Run:
    """`error`: standard error of the logarithm by the steps, None for one; `independent`: as how many they count."""

    log_median: float
    error: float | None
    independent: float


def step_change(base: Sequence[Sequence[float]], head: Sequence[Sequence[float]]) -> StepChange:
    """Compares runs, each a sequence of step times in microseconds; not all steps are alike, so medians are taken.

    What is no time of a step is left out, and runs without a step.
    """
    sides = [[_run(steps) for run in side if len(steps := _sound(run))] for side in (base, head)]
    if not all(sides):
        return StepChange("not_measured", reason="A side has no steps that could be compared.")
    before, after = (float(np.mean([run.log_median for run in side])) for side in sides)
    change = after - before
    half, spread = _several_runs(*sides) if len(sides[0]) + len(sides[1]) > 2 else (_one_run(*sides), None)
    if half is None:
        return StepChange("unclear", _us(before), _us(after), _share(change), reason=_ONE_STEP)
    return StepChange(
        "within_noise" if abs(change) <= half else "slower" if change > 0 else "faster",
        _us(before),
        _us(after),
        _share(change),
        low_share=_share(change - half),
        high_share=_share(change + half),
        unseen_share=_share(half),
        run_to_run_share=None if spread is None else _share(spread),
    )


def differ(base: Sequence[float], head: Sequence[float]) -> bool | None:
    """Whether a quantity with one value a run differs beyond what runs vary by; None with one run a side."""
    freedom = len(base) + len(head) - 2
    if freedom < 1 or not base or not head:
        return None
    error = math.sqrt(_pooled_variance(base, head) * (1 / len(base) + 1 / len(head)))
    return bool(abs(np.mean(head) - np.mean(base)) > t95(freedom) * error)


def t95(freedom: float) -> float:
    """Student's t of a two-sided 95 % interval: from the table, between its rows by the reciprocal."""
    if freedom > len(_T95):
        return _NORMAL95 + (_T95[-1] - _NORMAL95) * len(_T95) / freedom
    degrees = np.arange(len(_T95), 0, -1)
    return float(np.interp(1 / max(freedom, 1.0), 1 / degrees, _T95[::-1]))


def _several_runs(base: list[_Run], head: list[_Run]) -> tuple[float, float]:
    """Half the width of the interval, and the standard deviation of runs.

    Both sides are taken to vary alike, so that a side may have one run. Runs that agree better than their own steps
    allow agree by chance.
    """
    medians = [[run.log_median for run in side] for side in (base, head)]
    errors = [run.error for run in (*base, *head) if run.error is not None]
    by_steps = float(np.mean(np.square(errors))) if errors else 0.0
    variance = max(_pooled_variance(*medians), by_steps)
    error = math.sqrt(variance * (1 / len(base) + 1 / len(head)))
    return t95(len(base) + len(head) - 2) * error, math.sqrt(variance)


def _one_run(base: list[_Run], head: list[_Run]) -> float | None:
    """Half the width of Welch's interval over the steps and what runs may differ by; None where a side has one step."""
    squares, freedoms = [], []
    for run in (*base, *head):
        if run.error is None:
            return None
        squares.append(run.error**2)
        freedoms.append(run.independent - 1)
    total = sum(squares)
    if total <= 0:
        return UNMEASURED_RUN_TO_RUN
    freedom = total**2 / sum(square**2 / degrees for square, degrees in zip(squares, freedoms, strict=True))
    return math.hypot(t95(freedom) * math.sqrt(total), UNMEASURED_RUN_TO_RUN)


def _pooled_variance(base: Sequence[float], head: Sequence[float]) -> float:
    squares = sum(float(np.sum((np.asarray(side) - np.mean(side)) ** 2)) for side in (base, head))
    return squares / (len(base) + len(head) - 2)


def _run(steps: Sequence[float]) -> _Run:
    logs, median = np.log(steps), math.log(float(np.median(steps)))
    if len(logs) < 2:
        return _Run(median, None, 1.0)
    spread = 1.4826 * float(np.median(np.abs(logs - median))) if len(logs) >= FEW_STEPS else float(logs.std(ddof=1))
    independent = _independent(logs - median)
    return _Run(median, math.sqrt(math.pi / 2) * spread / math.sqrt(independent), independent)


def _independent(deviations: np.ndarray) -> float:
    """To how many independent steps these amount, when each resembles the one before it (lag-1 autocorrelation).

    An estimate from few steps is too small by about (1 + 3 r) / n (Marriott and Pope 1954).
    """
    count, total = len(deviations), float(np.sum(deviations**2))
    if total <= 0:
        return float(count)
    measured = float(np.sum(deviations[1:] * deviations[:-1])) / total
    alike = min(max(measured + (1 + 3 * measured) / count, 0.0), MOST_AUTOCORRELATION)
    return max(2.0, count * (1 - alike) / (1 + alike))


def _sound(steps: Sequence[float]) -> list[float]:
    return [us for us in steps if LEAST_US <= us <= MOST_US]


def _us(logarithm: float) -> float:
    return round(math.exp(logarithm), 3)


def _share(logarithm: float) -> float:
    return round(math.expm1(min(logarithm, MOST_LOGARITHM)), 6)
