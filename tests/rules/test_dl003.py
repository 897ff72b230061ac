"""DL003 pageable-copy: copy batches from pinned memory without blocking."""

from __future__ import annotations

import pytest
from support.planted import PlantedFault

from traceopt.analyzer.vocabulary.causes.table import HOST_SYNC
from traceopt.rules.catalogue.dl003_pageable_copy import PageableCopy
from traceopt.rules.catalogue.hs002_blocking_copy import BlockingCopy
from traceopt.rules.catalogue.lb002_launch_bound import LaunchBound
from traceopt.testing import assert_finds, assert_silent
from traceopt.testing.events import span
from traceopt.testing.machine import A100, STREAM, Machine


class TestPlanted(PlantedFault):
    code = "DL003"


@pytest.mark.parametrize(
    ("device", "major", "minor", "share"),
    [
        pytest.param("NVIDIA H100 80GB HBM3", 9, 0, 0.5, id="PCIe 5"),
        pytest.param("NVIDIA A100-SXM4-40GB", 8, 0, 0.0, id="PCIe 4"),
        pytest.param("Tesla T4", 7, 5, 0.0, id="PCIe 3"),
    ],
)
def test_pinned_memory_is_as_fast_as_the_devices_bus(device: str, major: int, minor: int, share: float) -> None:
    """The copy runs at 25.2 GB/s, and the step is nothing else: only a faster bus has something to gain."""
    machine = Machine({"name": device, "computeMajor": major, "computeMinor": minor, "totalGlobalMem": 16_000_000_000})
    for _ in range(5):
        with machine.step():
            _copy(machine, "Pageable", 1_000, 25_200_000)
    finding = assert_finds(PageableCopy, machine)
    assert finding.saving is not None
    assert finding.saving.est_us == pytest.approx(share * 1_000, abs=20)


@pytest.mark.parametrize(
    ("pinned_bytes", "saved_us"),
    [pytest.param(25_200_000, 2_500, id="as large"), pytest.param(8, 4_000, id="too small to tell")],
)
def test_pinned_copies_of_the_same_trace_tell_the_rate(pinned_bytes: int, saved_us: float) -> None:
    machine = Machine(A100)  # 25.2 GB/s from pinned memory, by its bus
    for _ in range(5):
        with machine.step():
            _copy(machine, "Pageable", 5_000, 25_200_000)
            _copy(machine, "Pinned", 2_520, pinned_bytes)
    finding = assert_finds(PageableCopy, machine)
    assert finding.saving is not None
    assert finding.saving.est_us == pytest.approx(saved_us, abs=20)


def test_many_small_copies_are_packed() -> None:
    """The GPU waits for the host between them: neither a graph nor other reads of the host shorten that."""
    machine = Machine(A100)
    for _ in range(5):
        with machine.step():
            for _ in range(100):
                with machine.python("train.py(9): <listcomp>"), machine.operator("aten::to"):
                    machine.work(20, "aten::empty_strided")
                    with machine.operator("aten::copy_"):
                        _copy(machine, "Pageable", 2, 80)
                        machine.synchronize(STREAM)
            for _ in range(10):
                machine.launch(500)
    finding = assert_finds(PageableCopy, machine)
    assert finding.saving is not None
    assert finding.saving.est_us == pytest.approx(machine.facts().step_ns / 1e3 - 10 * 500, rel=0.15)
    assert finding.title.startswith("Pack small input copies")
    assert "torch.cat" in finding.fix.text
    assert_silent(LaunchBound, machine)
    assert_silent(BlockingCopy, machine)
    largest = max(machine.facts().idle.causes, key=machine.facts().idle.typical_ns)
    assert largest is HOST_SYNC


def _copy(machine: Machine, memory: str, duration_us: int, size: int) -> None:
    """A copy of a batch that the host waits for."""
    start, number = machine.now + 5, machine.call("cudaMemcpyAsync", until=machine.now + duration_us + 10)
    args = {"device": 0, "stream": STREAM, "correlation": number, "bytes": size}
    copy = span("gpu_memcpy", f"Memcpy HtoD ({memory} -> Device)", start, duration_us, STREAM, **args)
    machine.events.append(copy | {"pid": 0})
