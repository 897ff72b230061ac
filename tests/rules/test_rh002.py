"""RH002 shared-gpu: give the run a GPU of its own."""

from __future__ import annotations

from pathlib import Path

from support.gpu_health import sampled

from traceopt.rules.catalogue.rh002_shared_gpu import SharedGpu
from traceopt.testing import answer


def test_fires_on_another_process(tmp_path: Path) -> None:
    check, findings = answer(SharedGpu, sampled(tmp_path, processes=[[7, 1, True], [99, 2**30, False]]))
    assert check.status == "found"
    assert findings[0].evidence[0].what == "Process 99"


def test_silent_without_another_process(tmp_path: Path) -> None:
    assert answer(SharedGpu, sampled(tmp_path))[0].status == "passed"


def test_numbers_of_processes_outside_a_container_say_nothing(tmp_path: Path) -> None:
    check, _ = answer(SharedGpu, sampled(tmp_path, processes=[[70, 1, False], [99, 2**30, False]]))
    assert check.status == "not_applicable"
