"""The course of `traceopt try`: each change on top of those that proved themselves, or each alone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from statistics import fmean

from msgspec import Struct
from msgspec.structs import replace

from traceopt.errors import one_line
from traceopt.result.comparison import StepChange
from traceopt.result.trial import ComparedLosses, PeakMemory, TrialVerdict, TriedChange
from traceopt.result.words.quantities import percent, signed_percent
from traceopt.trying.changes import Change, NotTried, Prediction
from traceopt.trying.expectation import Expectation, Recording, expectation
from traceopt.trying.first_steps import with_first_steps
from traceopt.trying.losses import compare_losses
from traceopt.trying.measured_run import Failure, MeasuredRun
from traceopt.trying.rounds import ALSO_BUSY, LEAST_GAIN, LEAST_ROUNDS, Rounds, Runner, measure
from traceopt.trying.running.interruption import SignalError
from traceopt.trying.spread import LOOKS, over_seeds

UNSEEN_SHARE = 0.05  # of the step: if the runs hide a gain of this size, "no gain" says so
BUDGET_SPENT = "the time budget is spent"
NO_TIME_FOR_SEEDS = "there was no time for runs with other seeds, which tell whether it trains the same"
BASELINE_FAILED = "the script without the change failed"
_SEEDED = [Change(f"seed {n}", "environment", "", "runtime", switches={"seed": n}) for n in range(1, LOOKS[-1] + 1)]


class Progress(Struct, frozen=True):
    """The change that is measured, its number among `count`, the rounds that are done, and the seconds left."""

    name: str
    number: int
    count: int
    rounds: int
    left_s: float


class Session:
    """Tries changes one after the other. `tried` grows while it does, and keeps what was measured if it is ended."""

    def __init__(
        self,
        run: Runner[Sequence[Change]],
        *,
        budget_s: float,
        each: bool = False,
        longest_s: float = math.inf,
        recording: Recording | None = None,
        run_steps: int | None = None,
        enough: Callable[[Rounds], bool] = lambda rounds: rounds.settled,
        tell: Callable[[Progress], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._each = each
        self._longest_s = longest_s  # for one change
        self._recording = recording
        self._enough = enough  # rounds of a change; what is kept together is measured until it is settled
        self.run_steps = run_steps  # of a whole run of the script; None: not known
        self._recorded_with = 0  # changes that were kept when the recording was made
        self._unchanged: Sequence[MeasuredRun] = ()
        self._by_seed: dict[tuple[str, ...], MeasuredRun] = {}  # runs without the change: names of the base, and seed
        self._tell = tell
        self._clock = clock
        self._until = clock() + budget_s
        self._round_s = 0.0  # the longest round so far
        self._round: int | None = None
        self.tried: list[TriedChange] = []
        self.kept: list[Change] = []

    def try_all(self, changes: Sequence[Change]) -> None:
        """Raises SignalError; `tried` then has a row for each change all the same."""
        self.try_round(changes)
        if len(self.kept) > 1 and not self._each and self.spare_s > 0:
            self.try_together([])

    def begin_round(self, number: int, recording: Recording | None) -> None:
        """The changes from now on are those of a new recording, which has all that was kept."""
        self._round = number
        self._recording = recording
        self._recorded_with = len(self.kept)
        self._unchanged = ()

    def announce(self, name: str) -> None:
        """Tells what is run now, outside of the rounds of a change."""
        self._tell(Progress(name, 1, 1, 0, max(0.0, self.left_s)))

    def try_round(self, changes: Sequence[Change]) -> None:
        """Raises SignalError; `tried` then has a row for each change all the same."""
        done = 0
        try:
            for change in changes:
                self._try(change, done + 1, len(changes))
                done += 1
        except SignalError:
            names = {row.name for row in self.tried}
            left = [one for one in changes if one.name not in names]
            self.tried += [_row(one, [], None, "not_tried", "interrupted", self._expected(one, [])) for one in left]
            raise

    def _try(self, change: Change, number: int, count: int) -> None:
        if self.spare_s <= 0 and self.tried:
            base = self._base(change)
            self.tried.append(_row(change, base, None, "not_tried", BUDGET_SPENT, self._expected(change, base)))
            return
        until = self._clock() + min(self._longest_s, max(0.0, self.left_s) / (count - number + 1))
        base = self._base(change)
        row = self._measured(change, base, number, count, until)
        self.tried.append(replace(row, tuning_round=self._round))
        if row.verdict == "keep" and change.revision is None:
            self.kept.append(change)

    def try_together(self, original: list[Change]) -> None:
        """All that was kept against the script as it was: gains that were measured one on top of another."""
        names = [change.name for change in self.kept]
        title = f"{' + '.join(names)} together"
        together = Change("all kept", "all", title, "patch")
        until = min(self._until, self._clock() + self._longest_s)
        row = self._measured(together, original, 1, 1, until, self.kept)
        self.tried.append(replace(row, on_top_of=[]))

    def _base(self, change: Change) -> list[Change]:
        """What both sides of the change have. Another revision may lack the lines that a fix changes."""
        return [] if self._each or change.revision is not None else list(self.kept)

    def _measured(
        self, change: Change, base: list[Change], number: int, count: int, until: float, made: Sequence[Change] = ()
    ) -> TriedChange:
        after = list(made) or [*base, change]
        known = Rounds([], [])
        began, reserved_s = self._clock(), 0.0

        def note(rounds: Rounds) -> None:
            nonlocal known, reserved_s
            known = rounds
            self._round_s = max(self._round_s, (self._clock() - began) / len(rounds.before))
            if _losses(rounds).verdict == "drifts":  # other seeds will have to tell
                reserved_s = LOOKS[0] * (self._clock() - began) / len(rounds.before)
            self._unchanged = rounds.counted_before if self._is_recorded(base) else self._unchanged
            self._tell(Progress(change.name, number, count, len(rounds.before), max(0.0, self.left_s)))

        def run(sides: Sequence[Sequence[Change]], /) -> list[MeasuredRun | Failure | None]:
            measured = zip(sides, self._run(sides), strict=True)
            return [_checked(one, change) if side is after else one for side, one in measured]

        self._tell(Progress(change.name, number, count, 0, max(0.0, self.left_s)))
        try:
            rounds = measure(
                run,
                base,
                after,
                wanted_us=lambda before: self._wanted_us(change, base, before),
                time_left=lambda: min(until, self._until - reserved_s) - self._clock(),
                finished_round=note,
                enough=self._enough if change.kind != "all" else lambda rounds: rounds.settled,
            )
        except SignalError:
            if known.before:
                self.tried.append(row_of(change, base, known, self._expected(change, base), interrupted=True))
            raise
        row = row_of(change, base, rounds, self._expected(change, base))
        if row.verdict == "trains_differently":
            try:
                row = self._judged_by_seeds(row, base, after)
            except SignalError:
                self.tried.append(row)
                raise
        return with_first_steps(row, rounds, change.seen if change.compiles else None, self.run_steps)

    def _judged_by_seeds(self, row: TriedChange, base: Sequence[Change], after: Sequence[Change]) -> TriedChange:
        """The row of a change whose losses drift: it is kept if it only draws other random numbers."""
        original, changed = list[Sequence[float]](), list[Sequence[float]]()
        for seed in _SEEDED:
            if self.left_s <= 0:
                return replace(row, reason=NO_TIME_FOR_SEEDS)
            key = (*(one.name for one in base), seed.name)
            known = self._by_seed.get(key)
            sides = [[*after, seed]] if known is not None else [[*after, seed], [*base, seed]]
            runs = [one for one in self._run(sides) if isinstance(one, MeasuredRun)]
            if len(runs) < len(sides):
                return row
            self._by_seed.setdefault(key, runs[-1])
            original.append(self._by_seed[key].losses)
            changed.append(runs[0].losses)
            if len(changed) in LOOKS:
                found = over_seeds(original, changed)
                if found.differs:
                    break
                if found.same and row.losses is not None:
                    largest = round(found.largest_share, 6)
                    losses = replace(row.losses, verdict="redrawn", within_share=largest, from_step=None)
                    return replace(row, verdict="keep", losses=losses)
        return row

    def _expected(
        self, change: Change, base: Sequence[Change], before: Sequence[MeasuredRun] | None = None
    ) -> Expectation:
        """`before`: the runs of the base so far, if they are newer than what is known of the unchanged script."""
        unchanged = before if self._is_recorded(base) and before is not None else self._unchanged
        return expectation(prediction_of(change, base), self._recording, unchanged)

    def _wanted_us(self, change: Change, base: Sequence[Change], before: Sequence[MeasuredRun]) -> float | None:
        """The gain per step that the measurement should confirm or refute."""
        if change.seen is not None and before:
            return change.seen.gain_share * fmean(run.step_us for run in before)
        return self._expected(change, base, before).us

    def _is_recorded(self, base: Sequence[Change]) -> bool:
        """Whether the recording is of this base."""
        return len(base) <= self._recorded_with

    @property
    def left_s(self) -> float:
        """For changes; besides it, what is kept can be measured together if a change has a longest time."""
        return self.all_left_s - (max(self._longest_s, self._least_s) if math.isfinite(self._longest_s) else 0.0)

    @property
    def spare_s(self) -> float:
        """Left after the least rounds of one more change: without any, it is not begun."""
        return self.left_s - self._least_s

    @property
    def _least_s(self) -> float:
        return LEAST_ROUNDS * self._round_s

    @property
    def all_left_s(self) -> float:
        return self._until - self._clock()


def prediction_of(change: Change, base: Sequence[Change]) -> Prediction | None:
    """Its saving in the plan, if both sides have the fixes that it needs; else its saving alone."""
    have = {one.name for one in base}
    if change.in_plan is not None and (have or not change.needs) and have.issuperset(change.needs):
        return change.in_plan if have else change.alone or change.in_plan
    return change.alone


def row_of(
    change: Change, base: Sequence[Change], rounds: Rounds, expected: Expectation, *, interrupted: bool = False
) -> TriedChange:
    """The row of a change that was run."""
    if rounds.failed is not None:
        side, failure = rounds.failed
        reason = failure.reason if side == "after" else f"{BASELINE_FAILED}: {failure.reason}"
        verdict: TrialVerdict = "fails" if side == "after" else "not_tried"
        return replace(
            _row(change, base, rounds, verdict, reason, expected), output=[one_line(line) for line in failure.output]
        )
    step = rounds.change()
    if step.change_share is None:
        return _row(change, base, rounds, "not_tried", "interrupted" if interrupted else step.reason, expected)
    losses = _losses(rounds)
    few = interrupted and len(rounds.before) < LEAST_ROUNDS
    verdict = "not_tried" if few else _verdict(rounds, step, losses)
    limits = [_reason(step, verdict), ALSO_BUSY if rounds.busy else None]
    limit = "interrupted" if interrupted else "; ".join(filter(None, limits)) or None
    row = _row(change, base, rounds, verdict, limit, expected)
    known = step.low_share is not None and step.high_share is not None
    return replace(
        row,
        before_us=step.base_us,
        after_us=step.head_us,
        gain_share=round(-step.change_share, 6),
        low_share=round(-(step.high_share or 0.0), 6) if known else None,
        high_share=round(-(step.low_share or 0.0), 6) if known else None,
        losses=losses,
        memory=_memory(rounds),
        seeded_by="script" if any(run.seeded_by_script for run in rounds.before) else "traceopt",
    )


def _losses(rounds: Rounds) -> ComparedLosses:
    return compare_losses([run.losses for run in rounds.before], [run.losses for run in rounds.after])


def _verdict(rounds: Rounds, step: StepChange, losses: ComparedLosses) -> TrialVerdict:
    change = step.change_share or 0.0
    if step.verdict == "faster" and -change >= LEAST_GAIN:
        return "trains_differently" if losses.verdict == "drifts" else "keep"
    if step.verdict == "slower" and change >= LEAST_GAIN:
        return "slower"
    return "no_gain" if rounds.excludes_gain(step) else "unclear"


def _reason(step: StepChange, verdict: TrialVerdict) -> str | None:
    """What limits the measurement."""
    if verdict == "unclear":
        if step.low_share is None or step.high_share is None:
            return "too few runs, or too different ones, to tell a gain from noise: try a larger --budget"
        least, most = (signed_percent(-share) for share in (step.high_share, step.low_share))
        return f"the runs vary too much: the gain is between {least} and {most}"
    if verdict == "no_gain" and step.unseen_share is not None and step.unseen_share >= UNSEEN_SHARE:
        return f"these runs could not detect a gain below {percent(step.unseen_share)}"
    if step.low_share is None:
        return "the change is clear, but the runs are too few or vary too much for an interval"
    return step.reason


def not_made(fix: NotTried) -> TriedChange:
    """The row of a fix that only a person can make."""
    return TriedChange(fix.code, "fix", fix.title, "patch", "not_tried", reason=fix.reason)


def _row(
    change: Change,
    base: Sequence[Change],
    rounds: Rounds | None,
    verdict: TrialVerdict,
    reason: str | None,
    expected: Expectation,
) -> TriedChange:
    predicted = expected.prediction
    patch = change.diff or (change.finding.fix.patch if change.finding is not None else None)
    return TriedChange(
        change.name,
        change.kind,
        change.title,
        change.via,
        verdict,
        [one.name for one in base],
        reason,
        predicted_us=predicted.us if predicted else None,
        predicted_low_us=predicted.low_us if predicted else None,
        predicted_high_us=predicted.high_us if predicted else None,
        prediction_note=expected.note,
        correction=predicted.correction if predicted else 1.0,
        rounds=rounds.rows() if rounds is not None else [],
        patch=patch,
    )


def _checked(run: MeasuredRun | Failure | None, change: Change) -> MeasuredRun | Failure | None:
    """A setting that no object of the script could take has not been tried."""
    unused = [name for name in change.switches if isinstance(run, MeasuredRun) and name not in run.switches_used]
    if change.switches and len(unused) == len(change.switches):
        return Failure(f"the setting had no effect: nothing in the script takes {', '.join(unused)}")
    return run


def _memory(rounds: Rounds) -> PeakMemory | None:
    """On the device if the script uses one, else of the process."""
    for where in ("device", "host"):
        sides = [
            [peak for run in side if (peak := getattr(run, f"peak_{where}_bytes")) is not None]
            for side in (rounds.before, rounds.after)
        ]
        if all(sides):
            return PeakMemory(where, max(sides[0]), max(sides[1]))
    return None
