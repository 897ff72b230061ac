"""Memory at the end of steps: what is read, how often, and what the file holds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from traceopt.capture.recording import step_memory
from traceopt.capture.recording.step_memory import MOST_READINGS, MOST_SHARE, StepMemory


class Clock:
    """Each reading of the process's memory takes 1 ms."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(step_memory, "time", SimpleNamespace(perf_counter=lambda: self.now))
        monkeypatch.setattr(step_memory, "_process_bytes", self.read)

    def read(self) -> int:
        self.now += 1e-3
        return 7


def torch_with(cuda: Any) -> Any:
    return SimpleNamespace(cuda=cuda)


CPU_ONLY = torch_with(SimpleNamespace(is_initialized=lambda: False))


def test_readings_take_a_small_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, memory = Clock(monkeypatch), StepMemory(CPU_ONLY)
    for step in range(1_000):
        memory.step_ended(step)
        clock.now += 0.01
    read = len((memory.document() or {})["steps"])
    assert 0 < read * 1e-3 <= 1.2 * MOST_SHARE * clock.now


def test_a_long_run_keeps_evenly_spaced_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, memory = Clock(monkeypatch), StepMemory(CPU_ONLY)
    for step in range(5 * MOST_READINGS):
        clock.now += 2
        memory.step_ended(step)
    steps = (memory.document() or {})["steps"]
    assert MOST_READINGS // 2 <= len(steps) < MOST_READINGS
    assert steps == list(range(0, 5 * MOST_READINGS, 8))


def test_the_gpu_is_asked_only_if_the_process_uses_it() -> None:
    counters = {"allocated_bytes": {"all": {"current": 3, "peak": 5}}}
    cuda = SimpleNamespace(is_initialized=lambda: True, memory_stats_as_nested_dict=lambda: counters)
    used, unused, other = StepMemory(torch_with(cuda)), StepMemory(CPU_ONLY), StepMemory(torch_with(None))
    for memory in (used, unused, other):
        assert memory.document() is None
        memory.step_ended(0)
    document = used.document() or {}
    assert (document["device_bytes"], document["device_peak_bytes"]) == ([3], [5])
    assert (unused.document() or {})["device_bytes"] == (other.document() or {})["device_bytes"] == [None]


@pytest.mark.parametrize(
    ("content", "known"), [(b"900 500 100 5 0 300 0\n", 400), (b"900 500 0 0 0 0 0\n", None), (b"", None)]
)
def test_mapped_files_do_not_count(content: bytes, known: int | None, tmp_path: Any, monkeypatch: Any) -> None:
    """Some containers report no shared pages: then files cannot be told from the process's own memory."""
    (tmp_path / "statm").write_bytes(content)
    monkeypatch.setattr(step_memory, "_STATM", str(tmp_path / "statm"))
    monkeypatch.setattr(step_memory.os, "sysconf", lambda _: 4096)
    memory = StepMemory(CPU_ONLY)
    memory.step_ended(0)
    assert (memory.document() or {})["process_bytes"] == [None if known is None else known * 4096]
