"""The same events in every step of a run on a GPU."""

from __future__ import annotations

from support.facts import repeated

from traceopt.analyzer.facts import Facts
from traceopt.testing.events import Json, read

STEP_US = 10_000.0
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"


def steps(*parts: list[Json], count: int = 3) -> Facts:
    return Facts(read(repeated(*parts, step_us=STEP_US, steps=count)))
