"""Steps of few kernels on a GPU, with the settings of the run."""

from __future__ import annotations

from typing import Any

from traceopt.analyzer.facts import Facts
from traceopt.testing import events as build

A100 = {
    "id": 0,
    "name": "NVIDIA A100-SXM4-40GB",
    "totalGlobalMem": 42_297_524_224,
    "computeMajor": 8,
    "computeMinor": 0,
}


def steps(*parts: list[build.Json], **metadata: Any) -> Facts:
    """A step of 10 ms for each part, whose times count from the step's start."""
    events = []
    for index, part in enumerate(parts):
        start = index * 10_000.0
        events.append(build.annotation(f"ProfilerStep#{index}", start, 10_000.0))
        events += [{**event, "ts": event["ts"] + start} for event in part]
    return Facts(build.read(build.document(events, deviceProperties=[A100], **metadata)))


def launched(correlation: int, kernel_us: float = 9.0, name: str = "gemm") -> list[build.Json]:
    return [build.runtime("cudaLaunchKernel", 100, 5, correlation), build.kernel(name, 106, kernel_us, correlation)]


def launches(own: dict[str, Any]) -> Facts:
    return steps(launched(1), launched(2), launched(3), traceopt=own)
