"""Predictions of a recording whose steps took longer than those that are measured."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from support.traces import GetExample

from traceopt.reports.words.comparing import trial_words
from traceopt.trying.changes import Change, Prediction
from traceopt.trying.expectation import Recording, expectation, recording_of
from traceopt.trying.measured_run import MeasuredRun
from traceopt.trying.session import Session

PREDICTED = Prediction(88_000.0, 66_000.0, 99_000.0)
CALM = MeasuredRun([200_000.0] * 20, core_wait_share=0.01)


def test_a_recording_whose_threads_waited_for_cores_gives_the_share_of_the_step() -> None:
    expected = expectation(PREDICTED, Recording(330_000.0, 1.0, 0.3), [CALM])
    assert expected.prediction is not None
    assert expected.prediction.us == pytest.approx(88_000 / 330 * 200)
    assert expected.prediction.low_us == pytest.approx(66_000 / 330 * 200)
    assert expected.note is not None
    assert "threads waited for cores during the recording; the recorded step took" in expected.note


def test_a_recording_that_the_profiler_slowed_gives_the_share_of_the_step() -> None:
    expected = expectation(PREDICTED, Recording(330_000.0, 1.6, 0.01), [CALM])
    assert expected.us == pytest.approx(88_000 / 330 * 200)
    assert expected.note is not None
    assert "the profiler slowed the recorded steps; the recorded step took" in expected.note


@pytest.mark.parametrize("recorded_us", [170_000.0, 230_000.0])
def test_a_recording_on_a_machine_of_another_pace_gives_the_share_of_the_step(recorded_us: float) -> None:
    expected = expectation(PREDICTED, Recording(recorded_us, 1.0, 0.01), [CALM])
    assert expected.us == pytest.approx(88_000 * 200_000 / recorded_us)
    assert (expected.note or "").startswith("the recorded step took")


def test_the_profilers_own_time_is_in_no_prediction() -> None:
    """Of 230 ms the profiler takes 25. Without them the steps are alike, so nothing is scaled."""
    expected = expectation(PREDICTED, Recording(230_000.0, 1.15, 0.01, profiler_us=25_000.0), [CALM])
    assert (expected.prediction, expected.note) == (PREDICTED, None)


@pytest.mark.parametrize("recorded_us", [330_000.0, 100_000.0])
def test_a_recording_that_is_unlike_the_measurement_predicts_nothing(recorded_us: float) -> None:
    expected = expectation(PREDICTED, Recording(recorded_us, 1.0, 0.01), [CALM])
    assert expected.prediction is None
    assert "they are not alike" in (expected.note or "")


@pytest.mark.parametrize(
    ("recording", "unchanged"),
    [
        (None, [CALM]),
        (Recording(330_000.0, 1.6), []),
        (Recording(205_000.0, 1.2, 0.3), [CALM]),
        (Recording(2e5), [CALM]),
    ],
)
def test_otherwise_the_prediction_of_the_plan_holds(
    recording: Recording | None, unchanged: Sequence[MeasuredRun]
) -> None:
    expected = expectation(PREDICTED, recording, unchanged)
    assert (expected.prediction, expected.note) == (PREDICTED, None)


def test_a_change_on_top_of_another_is_scaled_by_the_unchanged_script() -> None:
    """The first change halves the step; the recorded step was twice as long as the unchanged one."""

    def run(changes: Sequence[Change]) -> MeasuredRun:
        factors = {"a": 0.5, "b": 0.9}
        step_us = 1000.0
        for change in changes:
            step_us *= factors[change.name]
        return MeasuredRun([step_us] * 20)

    changes = [
        Change(name, "fix", name, "runtime", alone=Prediction(us, us, us)) for name, us in (("a", 1000.0), ("b", 100.0))
    ]
    session = Session(lambda sides: list(map(run, sides)), budget_s=600.0, recording=Recording(2000.0, 2.0))
    session.try_all(changes)
    assert [(row.name, row.predicted_us) for row in session.tried[:2]] == [("a", 500.0), ("b", 50.0)]
    assert "b: the profiler slowed the recorded steps; the recorded step took 2.0" in " ".join(
        trial_words.notes(session.tried)
    )


def test_only_rounds_that_count_say_how_long_the_unchanged_step_is() -> None:
    """In the first round other programs held the cores, and the step took twice as long."""
    waits = iter([0.5, 0.5] + [0.0] * 20)

    def run(_: Sequence[Change]) -> MeasuredRun:
        wait = next(waits)
        return MeasuredRun([2000.0 if wait else 1000.0] * 20, core_wait_share=wait)

    session = Session(lambda sides: list(map(run, sides)), budget_s=600.0, recording=Recording(1600.0, 1.6))
    session.try_all([Change("a", "fix", "a", "runtime", alone=Prediction(800.0, 800.0, 800.0))])
    assert session.tried[0].predicted_us == pytest.approx(500.0)


def test_what_is_read_of_a_result(example: GetExample) -> None:
    result = example("slow_loader").result
    recording = recording_of(result)
    assert recording is not None
    assert recording.step_us == result.step.typical_us
    assert recording_of(replace(result, step=replace(result.step, source="window"))) is None
