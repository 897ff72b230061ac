"""Memory snapshots of `traceopt run`, with a stand-in for CUDA: torch's functions were not called on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import traceopt
from fixtures.memory_snapshots import MIB, training
from traceopt.capture.recording.memory_snapshots import MOST_DUMPS, MemorySnapshots


class Cuda:
    """What torch offers: calls that wait until CUDA starts, a history, a snapshot and an observer."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.observers: list[Callable[[int, int, int, int], None]] = []
        self.histories: list[dict[str, Any]] = []
        self.snapshot = training(steps=1).snapshot()
        self.memory = SimpleNamespace(
            _record_memory_history=lambda **options: self.histories.append(options), _snapshot=lambda: self.snapshot
        )

    def _lazy_call(self, function: Callable[[], None]) -> None:
        self.waiting.append(function)

    def start(self) -> None:
        for function in self.waiting:
            function()


class Run:
    def __init__(self, folder: Path, *, requested: bool) -> None:
        self.cuda, self.step = Cuda(), 0
        self.notes: list[str] = []
        library = SimpleNamespace(_cuda_attach_out_of_memory_observer=self.cuda.observers.append)
        self.torch = SimpleNamespace(cuda=self.cuda, _C=library)
        self.folder = folder
        self.snapshots = MemorySnapshots(
            self.torch,
            folder,
            requested=requested,
            name=lambda: "host_1_rank3",
            step=lambda: self.step,
            note=self.notes.append,
            tell=lambda: None,
        )
        self.snapshots.watch()

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def fails(self) -> None:
        (observer,) = self.cuda.observers
        observer(0, 96 * MIB, 512 * MIB, 24 * MIB)


def test_cuda_is_never_started_by_traceopt(tmp_path: Path) -> None:
    run = Run(tmp_path, requested=True)
    run.snapshots.recorded()
    run.step = 3
    run.snapshots.finish()
    assert (run.cuda.histories, run.cuda.observers, run.files) == ([], [], [])
    assert run.notes == ["no memory snapshot was recorded: the run does not use CUDA"]


def test_the_history_is_recorded_only_on_request(tmp_path: Path) -> None:
    run = Run(tmp_path, requested=False)
    run.cuda.start()
    run.snapshots.recorded()
    assert (run.cuda.histories, run.files) == ([], [])
    run = Run(tmp_path, requested=True)
    run.cuda.start()
    run.snapshots.recorded()
    run.snapshots.finish()
    assert [one["stacks"] for one in run.cuda.histories] == ["python"]
    assert run.files == ["host_1_rank3.memory.pickle"]


def test_a_run_that_dies_leaves_its_snapshot_with_the_failed_line(tmp_path: Path) -> None:
    run = Run(tmp_path, requested=False)
    run.cuda.start()
    run.cuda.snapshot = run.cuda.snapshot | {"device_traces": [[]]}  # without a history
    run.fails()
    run.snapshots.finish()
    assert run.files == ["host_1_rank3.oom.memory.pickle"]
    result = traceopt.analyze(str(tmp_path))
    (finding,) = [one for one in result.findings if one.code == "MM008"]
    assert (finding.locations[0].file, finding.locations[0].function) == (__file__, "fails")
    assert result.memory_snapshot is not None
    failure = result.memory_snapshot.failure
    assert failure is not None
    assert (failure.requested_bytes, failure.device_free_bytes) == (96 * MIB, 24 * MIB)


def test_a_run_that_goes_on_leaves_none(tmp_path: Path) -> None:
    run = Run(tmp_path, requested=False)
    run.cuda.start()
    run.fails()
    run.step += 1
    run.snapshots.finish()
    assert run.files == []


def test_many_failures_are_not_all_written(tmp_path: Path) -> None:
    run = Run(tmp_path, requested=False)
    run.cuda.start()
    calls = []
    run.cuda.memory._snapshot = lambda: calls.append(1) or {"segments": []}
    for _ in range(MOST_DUMPS + 3):
        run.fails()
    assert len(calls) == MOST_DUMPS


@pytest.mark.parametrize("broken", ["observer", "history", "snapshot"])
def test_what_fails_is_a_note(tmp_path: Path, broken: str) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("CUDA error")

    run = Run(tmp_path, requested=True)
    if broken == "observer":
        run.torch._C._cuda_attach_out_of_memory_observer = fails
    elif broken == "history":
        run.cuda.memory._record_memory_history = fails
    else:
        run.cuda.memory._snapshot = fails
    run.cuda.start()
    run.snapshots.recorded()
    assert run.notes == ["memory snapshot: RuntimeError: CUDA error"]
    assert run.files == []


def test_a_forked_child_writes_nothing_of_the_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, requested=True)
    run.cuda.start()
    monkeypatch.setattr("os.getpid", lambda: -1)
    run.fails()
    run.snapshots.finish()
    assert run.files == []
