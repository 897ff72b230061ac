"""Traces for faults that the simulator cannot plant: five steps of 10 ms on an A100, written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from traceopt.analyzer.facts import Facts
from traceopt.testing import A100
from traceopt.testing import events as build

STEPS, STEP_US = 5, 10_000.0

GpuEvents = Callable[[float, int], Iterator[build.Json]]


def handmade(step: GpuEvents) -> Facts:
    """`step(start, id)` yields the events of one step; `id` is the first of a hundred free correlation ids."""
    events = []
    for index in range(STEPS):
        start = index * STEP_US
        events += [build.annotation(f"ProfilerStep#{index}", start, STEP_US), *step(start, 100 * (index + 1))]
    return Facts(build.read(build.document(events, deviceProperties=[A100], with_stack=1, record_shapes=1)))


def product_step(kernel: str, rows: int | None = 4096) -> GpuEvents:
    """A half-precision product that takes the GPU 6 of 10 ms, for which the host waits. `rows` None: no shapes."""

    def events(t: float, first_id: int) -> Iterator[build.Json]:
        half = "c10::Half"
        sizes = {"Input Dims": [[rows, 4096], [4096, 4096]], "Input type": [half, half]} if rows else {}
        yield build.python("model.py(7): forward", t + 50, 100)
        yield build.op("aten::mm", t + 90, 20, **sizes)
        yield build.runtime("cudaLaunchKernel", t + 100, 5, first_id)
        yield build.kernel(kernel, t + 110, 6_000, first_id)
        yield build.runtime("cudaDeviceSynchronize", t + 120, 6_000, first_id + 1)

    return events
