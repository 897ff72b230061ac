"""What `traceopt run` says after the command has ended, from the files of its processes."""

from __future__ import annotations

import gzip
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from traceopt.capture.launch import outcome
from traceopt.capture.launch.failure import add_failure
from traceopt.capture.launch.outcome import RecordingOutcome, read_outcome
from traceopt.capture.recording.trace_file import save
from traceopt.capture.settings import PRESETS, Settings
from traceopt.capture.status import Status, TraceNote
from traceopt.run_script import remarks

PLENTY = 10**12
STARTS = ", and recording starts with step {}, counted from 0"


def said(
    folder: Path,
    *statuses: Status,
    code: int = 0,
    markers: tuple[str, ...] = ("loaded", "torch"),
    preset: str = "standard",
) -> RecordingOutcome:
    for marker in markers:
        (folder / marker).touch()
    for number, status in enumerate(statuses):
        status.pid = number
        status.write(str(folder))
    return read_outcome(folder, Settings(folder, PRESETS[preset]), code)


def ended(**values: Any) -> Status:
    return Status(ended=True, **values)


@pytest.fixture(autouse=True)
def free_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Free bytes of the disk, as a list of one."""
    free = [PLENTY]
    monkeypatch.setattr(outcome, "_free_bytes", lambda _: free[0])
    return free


@pytest.mark.parametrize(
    ("steps", "preset", "code", "reason"),
    [
        (
            4, "standard", 0,
            f"the run ended after 4 steps{STARTS.format(8)}: let it run for 19 steps, or --preset quick, which needs 8",
        ),
        (2, "quick", 0, f"the run ended after 2 steps{STARTS.format(2)}: let it run for 8 steps"),
        (1, "standard", 1, f"the command failed (exit code 1) after 1 step{STARTS.format(8)}"),
        (0, "standard", 1, "the command failed (exit code 1) before its first training step ended"),
    ],
)  # fmt: skip
def test_a_run_that_is_too_short(tmp_path: Path, steps: int, preset: str, code: int, reason: str) -> None:
    assert said(tmp_path, ended(step=steps), code=code, preset=preset).reason == reason


def test_an_optimizer_that_calls_backward_many_times_may_count_those(tmp_path: Path) -> None:
    reason = said(tmp_path, ended(step=4, updates=4, backwards=80), code=0, preset="standard").reason
    assert reason is not None
    assert reason.endswith("or --step-on backward, which saw 80")


@pytest.mark.parametrize(
    ("markers", "code", "reason"),
    [
        (("loaded",), 1, "the command failed (exit code 1) before it imported torch"),
        (("loaded",), 0, "the command never imported torch"),
        (
            ("loaded", "torch"),
            -signal.SIGKILL,
            "the command was killed by SIGKILL before its first training step ended",
        ),
    ],
)
def test_a_command_that_reported_nothing(tmp_path: Path, markers: tuple[str, ...], code: int, reason: str) -> None:
    assert said(tmp_path, code=code, markers=markers).reason == reason


@pytest.mark.parametrize("markers", [(), ("loaded",), ("loaded", "torch")])
def test_a_full_disk_holds_not_even_the_status(tmp_path: Path, free_bytes: list[int], markers: tuple[str, ...]) -> None:
    free_bytes[0] = 0
    assert said(tmp_path, markers=markers).reason == f"the disk of the log folder {tmp_path} is full"


def test_a_log_folder_that_the_script_deleted(tmp_path: Path) -> None:
    gone = tmp_path / "logs" / ".traceopt"
    reason = read_outcome(gone, Settings(tmp_path / "logs", PRESETS["standard"]), 0).reason
    assert reason == f"the log folder {tmp_path / 'logs'} was deleted while the command ran"


def test_a_crash_is_told_with_the_steps_before_it(tmp_path: Path) -> None:
    (tmp_path / "trace").touch()
    trace = TraceNote("trace", "timing", 2, 5, "the run ended with ValueError")
    outcome = said(tmp_path, ended(step=10, traces=[trace]), code=1)
    assert outcome.failure == "The script failed (exit code 1) after 10 steps."
    assert outcome.notes == [
        "the command failed (exit code 1) after 10 steps; the analysis covers the steps recorded before",
        "the timing cycle has 2 of 5 steps: the run ended with ValueError",
        "the detail cycle was not recorded; the run ended after 10 steps",
    ]


def test_the_longest_wait_for_traces_is_told(tmp_path: Path) -> None:
    assert said(tmp_path, ended(saving_s=1.0), ended(saving_s=2.5)).saving_s == 2.5


def test_a_script_that_ends_well_has_no_failure(tmp_path: Path) -> None:
    (tmp_path / "trace").touch()
    assert said(tmp_path, ended(step=10, traces=[TraceNote("trace", "timing", 5, 5, None)])).failure is None


def test_memory_snapshots_of_a_run_without_traces(tmp_path: Path) -> None:
    (tmp_path / "vm_1.oom.memory.pickle").touch()
    outcome = said(tmp_path, Status(step=1, memory_snapshots=["vm_1.oom.memory.pickle", "gone.memory.pickle"]), code=1)
    assert outcome.traces == []
    assert outcome.memory_snapshots == [tmp_path / "vm_1.oom.memory.pickle"]
    assert list(remarks(outcome, quiet=True))[-1].startswith(
        "the run was out of GPU memory; the memory snapshot is kept"
    )


class EmptyTrace:
    """A profiler without events."""

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_text('{"traceEvents": []}')


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (3, {"exit_code": 3, "signal": None, "steps": 12}),
        (-signal.SIGKILL, {"exit_code": None, "signal": "SIGKILL", "steps": 12}),
        (-99, {"exit_code": None, "signal": "signal 99", "steps": 12}),
    ],
)
def test_a_failure_is_added_to_the_traces(tmp_path: Path, code: int, failure: dict[str, Any]) -> None:
    path = save(EmptyTrace(), tmp_path, "worker", {"pid": 7}).path
    other = tmp_path / "other.json.gz"
    other.write_bytes(b"{}")
    add_failure([other, path, tmp_path / "missing"], code, 12)
    document = json.loads(gzip.decompress(path.read_bytes()))
    assert document == {"traceopt": {"pid": 7, "failure": failure}, "traceEvents": []}
    assert other.read_bytes() == b"{}"
