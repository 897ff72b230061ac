"""The best of several values by successive halving: all run once, the better half once more, until one is left.

K. Jamieson and A. Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization" (2016). The value
that is left is then measured like any other change, so a lucky one is not kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean

from msgspec import Struct
from msgspec.structs import replace

from traceopt.rules.fixes.run_time import without_compile_settings
from traceopt.trying.changes import Change, Seen
from traceopt.trying.measured_run import Failure, MeasuredRun
from traceopt.trying.rounds import LEAST_GAIN, Runner


def best_of(
    run: Runner[Sequence[Change]],
    base: Sequence[Change],
    values: Sequence[Change],
    time_left: Callable[[], float],
    run_steps: int | None = None,
    failed: Callable[[str], None] = lambda _: None,
) -> Change | None:
    """The value with the shortest steps, and what its runs showed; None if none has a gain that would be kept, or the
    time is over.

    Each value runs next to the base, in turns where that is possible. Its steps are compared with those of that run, so
    that what slows the machine for a while slows both. A value that fails, or that nothing in the script takes, is out;
    `failed` gets the reason.
    With `run_steps`, the steps of a whole run, each step bears its part of what compiling takes.
    Raises SignalError.
    """
    contenders = [_Contender(value, [], []) for value in values]
    while contenders:
        for one in contenders:
            if time_left() <= 0:
                return None
            reason = one.compare(run, base, run_steps)
            if reason is not None:
                failed(reason)
        contenders = sorted(
            (contender for contender in contenders if contender.gain_share > 0), key=lambda one: -one.gain_share
        )
        if len(contenders) <= 1:
            break
        contenders = contenders[: math.ceil(len(contenders) / 2)]
    if not contenders or contenders[0].gain_share < LEAST_GAIN:
        return None
    best = contenders[0]
    seen = Seen(best.gain_share, fmean(best.extra_us))
    return replace(best.value, seen=seen, environment=without_compile_settings(best.value.environment))


class _Contender(Struct):
    """`logarithms`: of its steps as parts of those of the base, infinite if it was not measured. `extra_us`: how much
    longer its first steps took.
    """

    value: Change
    logarithms: list[float]
    extra_us: list[float]

    @property
    def gain_share(self) -> float:
        return -math.expm1(fmean(self.logarithms)) if math.inf not in self.logarithms else -math.inf

    def compare(self, run: Runner[Sequence[Change]], base: Sequence[Change], run_steps: int | None) -> str | None:
        """Why it failed; None if it did not."""
        before, after = run([base, [*base, self.value]])
        if not (isinstance(before, MeasuredRun) and isinstance(after, MeasuredRun)) or not _took(after, self.value):
            self.logarithms.append(math.inf)
            if isinstance(before, Failure):
                return f"the script without it failed: {before.reason}"
            return after.reason if isinstance(after, Failure) else "nothing in the script takes it"
        steps = run_steps if self.value.compiles else None  # the first steps of other runs differ by noise
        self.logarithms.append(math.log(after.mean_us(steps) / before.mean_us(steps)))
        self.extra_us.append(after.extra_us - before.extra_us)
        return None


def _took(run: MeasuredRun, value: Change) -> bool:
    """Whether something in the script took the value."""
    return not value.switches or any(name in run.switches_used for name in value.switches)
