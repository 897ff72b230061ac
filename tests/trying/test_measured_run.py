"""The step time of a timed run: on a GPU, the work that the host left in its queue counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from traceopt.trying.measured_run import MeasuredRun, read_run


def run_of(folder: Path, step_us: list[float], left_us: float) -> MeasuredRun:
    document = {"step_us": [9_000.0] * 2 + step_us, "settled": 2, "drained_us": left_us}
    (folder / "host.1.timed.json").write_text(json.dumps(document))
    run = read_run(folder)
    assert isinstance(run, MeasuredRun)
    return run


@pytest.mark.parametrize(
    ("step_us", "left_us"),
    [
        ([1_000.0] * 20, 0.0),  # the host waits for the GPU in each step
        ([990.0] * 20, 200.0),  # the GPU needs a little longer
        ([10.0] * 20, 19_800.0),  # all of the work waits in the queue
        ([10.0] * 4 + [1_000.0] * 16, 3_960.0),  # the queue is full after four steps
    ],
)
def test_a_step_takes_as_long_as_the_gpu(tmp_path: Path, step_us: list[float], left_us: float) -> None:
    assert run_of(tmp_path, step_us, left_us).step_us == pytest.approx(1_000.0)


def test_unusual_steps_are_left_out(tmp_path: Path) -> None:
    assert run_of(tmp_path, [1_000.0] * 10 + [8_000.0] + [1_000.0] * 9, 0.0).step_us == pytest.approx(1_000.0)


def test_the_start_and_what_later_steps_take_once(tmp_path: Path) -> None:
    run = run_of(tmp_path, [1_000.0] * 10 + [8_000.0] + [1_000.0] * 9, 0.0)
    assert run.start_us == 9_000.0
    assert run.extra_us == pytest.approx(8_000.0 + 7_000.0)
    assert run.mean_us(1_000) == pytest.approx(1_015.0)
