"""The best of several values by successive halving: all run once, the better half once more, until one is left.

K. Jamieson and A. Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization" (2016). The value
that is left is then measured like any other change, so a lucky one is not kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from traceopt.trying.changes import Change
from traceopt.trying.measured_run import MeasuredRun
from traceopt.trying.rounds import Runner


def best_of(
    run: Runner[Sequence[Change]],
    base: Sequence[Change],
    values: Sequence[Change],
    time_left: Callable[[], float],
    run_steps: int | None = None,
) -> Change | None:
    """The value with the shortest steps; None if none is shorter than the base, or the time is over.

    Each value runs next to the base, in turns where that is possible. Its steps are compared with those of that run, so
    that what slows the machine for a while slows both. A value that fails, or that nothing in the script takes, is out.
    With `run_steps`, the steps of a whole run, each step bears its part of what the first ones take, such as compiling.
    Raises SignalError.
    """
    logarithms: dict[str, list[float]] = {value.name: [] for value in values}
    left = list(values)
    while left:
        for value in left:
            if time_left() <= 0:
                return None
            logarithms[value.name].append(_compared(run, base, value, run_steps))
        means = {value.name: math.fsum(seen := logarithms[value.name]) / len(seen) for value in left}
        left = sorted((value for value in left if means[value.name] < 0), key=lambda value: means[value.name])
        if len(left) <= 1:
            break
        left = left[: math.ceil(len(left) / 2)]
    return left[0] if left else None


def _compared(run: Runner[Sequence[Change]], base: Sequence[Change], value: Change, run_steps: int | None) -> float:
    """The logarithm of its step as a part of the base's; infinite if it was not measured."""
    before, after = run([base, [*base, value]])
    if not (isinstance(before, MeasuredRun) and isinstance(after, MeasuredRun)):
        return math.inf
    used = not value.switches or any(name in after.switches_used for name in value.switches)
    return math.log(after.mean_us(run_steps) / before.mean_us(run_steps)) if used else math.inf
