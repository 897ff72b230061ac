"""Changes that `traceopt try` made, ran and measured."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from traceopt.result.field_notes import note

ChangeKind = Literal["fix", "patch", "revision", "environment", "arguments", "searched", "all"]
Via = Literal["patch", "runtime", "revision", "environment", "arguments"]
TrialVerdict = Literal["keep", "no_gain", "unclear", "slower", "trains_differently", "fails", "not_tried"]
LossVerdict = Literal["identical", "close", "redrawn", "drifts", "unknown"]


class TriedRound(Struct, frozen=True):
    """One run of each side, one after the other."""

    before_us: Annotated[float, note("typical step without the change", "us")]
    after_us: Annotated[float, note("typical step with the change", "us")]
    disturbed: Annotated[str | None, note("why the round does not count; null: it counts")] = None


class ComparedLosses(Struct, frozen=True):
    """Whether the script trains the same with the change: the losses of the first steps of both sides."""

    verdict: Annotated[
        LossVerdict,
        note(
            "identical: every bit; close: within `within_share`; redrawn: the change draws other random numbers, and "
            "over several seeds the mean losses differ by at most `within_share`; drifts: from `from_step` on; "
            "unknown: no loss was seen"
        ),
    ]
    within_share: Annotated[float | None, note("largest difference, as a part of the loss", "share")] = None
    usual_share: Annotated[float | None, note("the same between runs without the change; null: not known", "share")] = (
        None
    )
    from_step: Annotated[int | None, note("first step, from 0, with a larger difference than usual")] = None
    before: Annotated[
        list[float | None], note("losses without the change, one per step, from step 0; null: not finite")
    ] = []
    after: Annotated[list[float | None], note("losses with the change; null: not finite")] = []


class PeakMemory(Struct, frozen=True):
    """Peak memory of a process, the largest of all ranks."""

    where: Annotated[Literal["device", "host"], note("device: tensors on the GPU; host: resident memory")]
    before_bytes: Annotated[int, note("without the change", "bytes")]
    after_bytes: Annotated[int, note("with the change", "bytes")]


class TriedChange(Struct, frozen=True):
    """A change, what was predicted of it, and what was measured on this machine."""

    name: Annotated[str, note("code of the rule, or the change as it was given")]
    kind: Annotated[
        ChangeKind,
        note("where the change comes from; searched: a value of a setting; all: every change that was kept, together"),
    ]
    title: Annotated[str, note("what was changed")]
    via: Annotated[Via, note("how it was made; runtime: by a setting that was changed while the script started")]
    verdict: Annotated[
        TrialVerdict,
        note(
            "keep: faster, and it trains the same; no_gain: the interval leaves no room for a gain that matters; "
            "unclear: the runs vary too much to tell; slower; trains_differently: faster, but the losses drift; fails: "
            "it could not be made or did not run; not_tried"
        ),
    ]
    on_top_of: Annotated[list[str], note("changes that both sides have")] = []
    reason: Annotated[str | None, note("why it failed or was not tried, or what limits the measurement")] = None
    output: Annotated[list[str], note("last lines of a script that failed")] = []
    predicted_us: Annotated[float | None, note("predicted gain per step; null: no prediction", "us")] = None
    predicted_low_us: Annotated[float | None, note("predicted gain, at least", "us")] = None
    predicted_high_us: Annotated[float | None, note("predicted gain, at most", "us")] = None
    prediction_note: Annotated[
        str | None, note("why the prediction differs from the plan's, or is missing; null: it is the plan's")
    ] = None
    correction: Annotated[float, note("what earlier trials on this machine multiplied the prediction by")] = 1.0
    before_us: Annotated[float | None, note("step without the change; null: not measured", "us")] = None
    after_us: Annotated[float | None, note("step with the change; null: not measured", "us")] = None
    gain_share: Annotated[float | None, note("measured gain as a part of the step; below 0: slower", "share")] = None
    low_share: Annotated[
        float | None, note("gain, at least: the end of the 99 % interval; null: too wide", "share")
    ] = None
    high_share: Annotated[
        float | None, note("gain, at most: the end of the 99 % interval; null: too wide", "share")
    ] = None
    rounds: Annotated[list[TriedRound], note("runs in the order in which they were made")] = []
    losses: Annotated[ComparedLosses | None, note("whether it trains the same")] = None
    memory: Annotated[PeakMemory | None, note("peak memory of both sides; null: not known")] = None
    seeded_by: Annotated[
        Literal["script", "traceopt"] | None, note("who fixed the random seeds, in the same way on both sides")
    ] = None
    patch: Annotated[str | None, note("the change as a unified diff; null: it has none")] = None
    tuning_round: Annotated[
        int | None, note("round of `traceopt tune`, from 1; null: of `traceopt try`, or the whole tuning")
    ] = None

    @property
    def gain_us(self) -> float | None:
        """Measured gain per step."""
        return None if self.before_us is None or self.after_us is None else self.before_us - self.after_us


class Machine(Struct, frozen=True):
    """Machines with the same values are taken for the same."""

    gpu: Annotated[str | None, note("name of the GPU; null: none does the work")]
    cpu: Annotated[str, note("model of the CPU")]
    cpus: Annotated[int, note("logical CPUs")]
    threads: Annotated[int | None, note("threads of each operator; null with a GPU")] = None


class Attempt(Struct, frozen=True):
    """A line of `tried.jsonl`. Times are microseconds per step; the gain is between `gain_low_us` and `gain_high_us`
    (99 %). The prediction includes `correction`.
    """

    time: str
    script: str
    code: str
    via: str
    verdict: str
    predicted_us: float
    predicted_low_us: float
    predicted_high_us: float
    before_us: float
    gain_us: float
    gain_low_us: float
    gain_high_us: float
    device: str | None = None
    machine: Machine | None = None
    correction: float = 1.0


class Agreement(Struct, frozen=True):
    """Predicted against measured gains of one rule; shares are of the step without the change.

    An error is the predicted minus the measured gain. `covered`: the attempts whose measured interval touches the range
    of the prediction.
    """

    code: str
    attempts: int
    median_error_share: float
    median_absolute_error_share: float
    covered: int
