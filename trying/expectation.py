"""What is expected of a change on this machine: its prediction, in terms of the step that is measured.

The recorded step may be longer than the measured one, because the profiler slowed it, because its threads waited for
cores, or because the machine was slower then; or shorter, because memory that the profiler freed served its tensors.
Then a fix gains the same share of the other step. The profiler's own time is left out before the two are compared,
because no prediction includes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, geometric_mean

from msgspec import Struct

from traceopt.result.document import Result
from traceopt.result.words.quantities import ms_of_us
from traceopt.trying.changes import Prediction
from traceopt.trying.measured_run import MeasuredRun
from traceopt.trying.rounds import MORE_WAIT

DIFFERENT = 1.1  # times as long or as short as the measured step: the times of the recording do not hold
UNLIKE = 1.25  # for no known reason: the recording says nothing about the measured step


class Recording(Struct, frozen=True):
    """The recorded step; how many times as long it is as the steps without a profiler; the share of that run in which
    the training thread was ready but had no core. None: not known. `profiler_us` is the profiler's own time in the
    step.
    """

    step_us: float
    stretch: float | None = None
    core_wait_share: float | None = None
    profiler_us: float = 0.0


class Expectation(Struct, frozen=True):
    """`note` says why it is not the prediction of the report, or why there is none."""

    prediction: Prediction | None
    note: str | None = None

    @property
    def us(self) -> float | None:
        return None if self.prediction is None else self.prediction.us


def recording_of(result: Result) -> Recording | None:
    """None without steps."""
    step, run = result.step, result.whole_run
    if not step.typical_us or step.source == "window":
        return None
    waited = None if run is None else run.core_wait_share
    return Recording(step.typical_us, step.stretch, waited, step.profiler_us or 0.0)


def run_steps_of(result: Result | None) -> int | None:
    """Steps of a whole run of the script; None: it was ended before, so they are not known."""
    run = result.whole_run if result is not None else None
    return run.steps if run is not None and run.complete else None


def expectation(
    prediction: Prediction | None, recording: Recording | None, unchanged: Sequence[MeasuredRun]
) -> Expectation:
    """`unchanged`: runs without any change that count; empty before the first one."""
    if prediction is None or recording is None or not unchanged:
        return Expectation(prediction)
    measured_us = geometric_mean(run.step_us for run in unchanged)
    longer = (recording.step_us - recording.profiler_us) / measured_us
    both = f"the recorded step took {ms_of_us(recording.step_us)} and the measured one {ms_of_us(measured_us)}"
    why = _why_longer(recording, unchanged) if longer > 1 else None
    if why is None and not 1 / UNLIKE < longer < UNLIKE:
        return Expectation(None, f"{both}: they are not alike, so there is no prediction")
    if 1 / DIFFERENT < longer < DIFFERENT:
        return Expectation(prediction)
    us, low_us, high_us = (round(us / longer, 3) for us in (prediction.us, prediction.low_us, prediction.high_us))
    scaled = Prediction(us, low_us, high_us, prediction.correction)
    known = "" if why is None else f"{why}; "
    return Expectation(scaled, f"{known}{both}, so the prediction is the same share of the measured step")


def _why_longer(recording: Recording, unchanged: Sequence[MeasuredRun]) -> str | None:
    waits = [run.core_wait_share for run in unchanged if run.core_wait_share is not None]
    if recording.core_wait_share is not None and waits and recording.core_wait_share > fmean(waits) + MORE_WAIT:
        return "threads waited for cores during the recording"
    if recording.stretch is not None and recording.stretch >= DIFFERENT:
        return "the profiler slowed the recorded steps"
    return None
