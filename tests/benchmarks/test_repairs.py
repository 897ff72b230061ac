"""The repair tasks: each script trains the same with and without its fault, and nothing gives the fault away."""

from __future__ import annotations

import contextlib
import io

import pytest

from benchmarks.agents.repairs.__main__ import named
from benchmarks.agents.repairs.grading import Grade, diff_of, graded
from benchmarks.agents.repairs.tasks import SCRIPT, TASKS

SHORT = [name for name in TASKS if name != "workers_for_rows"]  # the other one starts processes


def losses(text: str, steps: int = 3) -> list[float]:
    import torch

    found: list[float] = []
    threads, anomalies = torch.get_num_threads(), torch.is_anomaly_enabled()
    text = text.replace("STEPS = int(sys.argv[1])", f"STEPS = {steps}").replace(
        "    optimizer.step()\n", "    optimizer.step()\n    report(loss.item())\n"
    )
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(text, SCRIPT, "exec"), {"__name__": "__main__", "report": found.append})  # noqa: S102
    finally:
        torch.set_num_threads(threads)
        torch.autograd.set_detect_anomaly(anomalies)
    return found


def test_there_are_thirty_tasks() -> None:
    assert len(TASKS) == 30


@pytest.mark.torch
@pytest.mark.parametrize("name", SHORT)
def test_the_repaired_script_trains_the_same(name: str) -> None:
    before, after = losses(TASKS[name].script), losses(TASKS[name].repaired)
    assert len(before) == 3
    assert after == pytest.approx(before, rel=1e-5)


@pytest.mark.parametrize("name", TASKS)
def test_the_planted_lines_are_those_that_the_repair_changes(name: str) -> None:
    task = TASKS[name]
    assert name not in task.script
    lines = task.script.splitlines()
    numbers = [int(place.rpartition(":")[2]) for place in task.planted]
    removed = {line[1:] for line in diff_of(task.script, task.repaired).splitlines()[2:] if line.startswith("-")}
    assert not removed or {lines[number - 1] for number in numbers} >= removed


def test_an_output_that_names_a_planted_line_is_right() -> None:
    task = TASKS["dense_table"]
    event = '{"cat": "python_function", "name": "%s(%s): f", "ts": 0, "dur": 5, "tid": 1}'
    line = task.planted[0].rpartition(":")[2]
    assert named(task, "raw JSON excerpt", event % (SCRIPT, line))
    assert not named(task, "raw JSON excerpt", event % (SCRIPT, "1"))


def test_an_unchanged_script_is_no_repair() -> None:
    task = TASKS["dense_table"]
    assert not graded(task, task.script).is_repaired
    assert Grade("keep").is_repaired
