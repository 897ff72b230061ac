"""DL003 pageable-copy: copy batches from pinned memory without blocking."""

from __future__ import annotations

import pytest
from support.planted import PlantedFault

from traceopt.rules.catalogue.dl003_pageable_copy import PageableCopy
from traceopt.testing import assert_finds
from traceopt.testing.events import span
from traceopt.testing.machine import STREAM, Machine


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
            start, number = machine.now + 5, machine.call("cudaMemcpyAsync", until=machine.now + 1_010)
            args = {"device": 0, "stream": STREAM, "correlation": number, "bytes": 25_200_000}
            copy = span("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", start, 1_000, STREAM, **args)
            machine.events.append(copy | {"pid": 0})
    finding = assert_finds(PageableCopy, machine)
    assert finding.saving is not None
    assert finding.saving.est_us == pytest.approx(share * 1_000, abs=20)
