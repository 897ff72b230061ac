"""Measures two sides in rounds, A B B A ..., until the difference is known well enough or the time is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from traceopt.comparison.noise import step_change
from traceopt.result.comparison import StepChange
from traceopt.result.trial import TriedRound
from traceopt.trying.measured_run import Failure, MeasuredRun

LEAST_ROUNDS = 2
MOST_ROUNDS = 100
ENOUGH_SHARE = 1 / 3  # of the predicted gain: an interval this narrow settles it
MOST_WANTED = 0.5  # of the step: a larger prediction asks for no wider interval
LEAST_GAIN = 0.01  # of the step: less is not worth a change, whatever the statistics say
MORE_WAIT = 0.05  # of the run: a training thread that waited this much longer than usual for a core was disturbed
LOWER_CLOCK = 0.05  # of the highest clock of a side's runs
ALSO_BUSY = "too few undisturbed rounds: other programs used the machine"

Side = TypeVar("Side")
AnySide = TypeVar("AnySide", contravariant=True)


class Runner(Protocol[AnySide]):
    """Runs each side once; the first one starts first."""

    def __call__(self, sides: Sequence[AnySide], /) -> Sequence[MeasuredRun | Failure | None]:
        """In the order of the sides. None: it was not measured, because another one failed. Raises SignalError."""


class Rounds(Struct, frozen=True):
    """What both sides measured. `failed` is the side ("before" or "after") whose run failed, and how.

    `widest_share`: no interval wider than this share of the step settles the answer.
    """

    before: list[MeasuredRun]
    after: list[MeasuredRun]
    failed: tuple[str, Failure] | None = None
    wanted_us: float | None = None
    least: int = LEAST_ROUNDS
    widest_share: float | None = None

    @property
    def disturbed(self) -> list[str | None]:
        """For each round, why it does not count; None if it does."""
        of_sides = zip(_disturbances(self.before), _disturbances(self.after), strict=True)
        return [before or after for before, after in of_sides]

    @property
    def counted(self) -> list[int]:
        """The rounds that count: the undisturbed ones, or all of them if these are too few."""
        quiet = [index for index, why in enumerate(self.disturbed) if why is None]
        return quiet if len(quiet) >= self.least else list(range(len(self.before)))

    @property
    def counted_before(self) -> list[MeasuredRun]:
        return [self.before[index] for index in self.counted]

    @property
    def counted_after(self) -> list[MeasuredRun]:
        return [self.after[index] for index in self.counted]

    @property
    def busy(self) -> bool:
        """Whether disturbed rounds had to count."""
        return any(self.disturbed[index] is not None for index in self.counted)

    def change(self) -> StepChange:
        before, after = ([run.steps_us for run in side] for side in (self.counted_before, self.counted_after))
        return step_change(before, after, in_turn=True)

    @property
    def settled(self) -> bool:
        """Whether more rounds would not change the answer.

        The interval is narrower than a third of the predicted gain, or of the measured one where nothing was predicted
        or the gain is larger. Disturbed rounds are repeated first.
        """
        if len(self.counted) < self.least or self.busy:
            return False
        change = self.change()
        if change.low_share is None or change.high_share is None or change.base_us is None:
            return False
        width, wanted = change.high_share - change.low_share, self._enough_share(change.base_us)
        if self.widest_share is not None and width > self.widest_share:
            return False
        clear = change.verdict in ("faster", "slower")
        return width <= (max(wanted, ENOUGH_SHARE * abs(change.change_share or 0.0)) if clear else wanted)

    @property
    def decided(self) -> bool:
        """Whether more rounds would not change whether it is kept: surely a gain worth keeping, or surely none that
        matters.
        """
        if len(self.counted) < self.least or self.busy:
            return False
        change = self.change()
        surely_worth = change.high_share is not None and -change.high_share >= LEAST_GAIN
        return surely_worth or self.excludes_gain(change)

    def excludes_gain(self, change: StepChange) -> bool:
        """Whether the interval leaves no room for a gain that matters: one that would be kept, or that is at least a
        third of the predicted one.
        """
        if change.low_share is None or change.base_us is None:
            return False
        return -change.low_share < max(LEAST_GAIN, self._enough_share(change.base_us))

    def _enough_share(self, base_us: float) -> float:
        """The width of an interval that settles the answer, as a share of the step."""
        if self.wanted_us is None:
            return LEAST_GAIN
        return ENOUGH_SHARE * min(self.wanted_us / base_us, MOST_WANTED)

    def rows(self) -> list[TriedRound]:
        rows = zip(self.before, self.after, self.disturbed, strict=True)
        return [TriedRound(round(b.step_us, 3), round(a.step_us, 3), why) for b, a, why in rows]


def measure(
    run: Runner[Side],
    before: Side,
    after: Side,
    *,
    wanted_us: Callable[[Sequence[MeasuredRun]], float | None],
    time_left: Callable[[], float],
    least_rounds: int = LEAST_ROUNDS,
    widest_share: float | None = None,
    finished_round: Callable[[Rounds], None] = lambda _: None,
    enough: Callable[[Rounds], bool] = lambda rounds: rounds.settled,
) -> Rounds:
    """Rounds until there are `enough`. Every second one starts with the other side, so that a machine that slows down
    favors neither.

    `wanted_us` is the expected gain per step, given the runs without the change that count. `time_left` is the seconds
    left for these rounds. The first `least_rounds` are made in any case. No round is begun that would take longer than
    the time left. If a run raises, `finished_round` has been given all that is known.
    """
    rounds = Rounds([], [], least=least_rounds, widest_share=widest_share)
    longest_s = 0.0
    while len(rounds.before) < MOST_ROUNDS and not enough(rounds):
        left_s = time_left()
        if len(rounds.before) >= least_rounds and left_s < longest_s:
            break
        order = 1 if len(rounds.before) % 2 == 0 else -1
        measured = run([before, after][::order])[::order]
        for side, one in zip(("before", "after"), measured, strict=True):
            if isinstance(one, Failure):
                return replace(rounds, failed=(side, one))
        of_before, of_after = (one for one in measured if isinstance(one, MeasuredRun))
        rounds = replace(rounds, before=[*rounds.before, of_before], after=[*rounds.after, of_after])
        rounds = replace(rounds, wanted_us=wanted_us(rounds.counted_before))
        longest_s = max(longest_s, left_s - time_left())
        finished_round(rounds)
    return rounds


def _disturbances(side: Sequence[MeasuredRun]) -> list[str | None]:
    """Compared with the calmest run of the same side, as a script may crowd its cores by itself."""
    waits = [run.core_wait_share for run in side if run.core_wait_share is not None]
    clocks = [run.clock_share for run in side if run.clock_share is not None]
    least_wait, best_clock = min(waits, default=0.0), max(clocks, default=1.0)
    return [_disturbance(run, least_wait, best_clock) for run in side]


def _disturbance(run: MeasuredRun, least_wait: float, best_clock: float) -> str | None:
    if run.core_wait_share is not None and run.core_wait_share > least_wait + MORE_WAIT:
        return "other programs held the cores"
    if run.throttled is not None:
        return f"the GPU was throttled: {run.throttled}"
    if run.clock_share is not None and run.clock_share < best_clock - LOWER_CLOCK:
        return "the clock of the GPU dropped"
    return None
