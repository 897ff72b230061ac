"""Memory that grows steadily during a whole run: a leak, unless the batches grow as well.

Only the longest stretch of steps without a profiler is judged: a profiler's own memory comes and goes. The stretch is
cut into blocks, and the lowest reading of each counts. It must rise from every block to the next, and late in the
stretch about as fast as at its start: caches that fill up grow less and less, and a single jump is no leak.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.run_log.step_ledger import Ledger
from traceopt.analyzer.run_log.step_memory import UNKNOWN, StepMemory
from traceopt.analyzer.tables.schema import I8

MIN_STEPS = 60
MIN_READINGS = 24
BLOCKS = 8
MIN_OF_MEAN = 0.25  # growth from block to block as a part of the mean
STEADY = 0.6  # growth over the last blocks as a part of that over the first; a logarithm has 0.34, a square root 0.59
END_BLOCKS = 4  # at each end
LARGER_BATCHES = 1.1  # batches that grow so much may explain the growth


class MemoryGrowth(Struct, frozen=True):
    """`before_bytes` is the lowest reading of the first block, `after_bytes` that plus the growth over these steps."""

    where: Literal["device", "process"]
    first_step: int
    last_step: int
    before_bytes: int
    after_bytes: int
    bytes_per_step: float


class MemoryOverRun(Struct, frozen=True):
    """How the memory of a run was judged, from `first_step` to `last_step`. `growth`: on the GPU, else in the process;
    None if neither grows. `larger_batches`: the batches grow too, which may be the reason.
    """

    first_step: int
    last_step: int
    growth: MemoryGrowth | None
    larger_batches: bool


def find_memory_over_run(ledger: Ledger, memory: StepMemory) -> MemoryOverRun | None:
    """None if there are too few readings without a profiler."""
    stretch = _longest(ledger.usual)
    if len(stretch) < MIN_STEPS:
        return None
    first, last = int(stretch[0]), int(stretch[-1])
    inside = (memory.steps >= first) & (memory.steps <= last)
    steps, device, process = memory.steps[inside], memory.device_bytes[inside], memory.process_bytes[inside]
    if max(np.count_nonzero(device != UNKNOWN), np.count_nonzero(process != UNKNOWN)) < MIN_READINGS:
        return None
    growth = _growth("device", steps, device) or _growth("process", steps, process)
    return MemoryOverRun(first, last, growth, _larger_batches(ledger.elements, stretch))


def _longest(steps: I8) -> I8:
    """The longest stretch of numbers that follow each other."""
    stretches = np.split(steps, np.flatnonzero(np.diff(steps) > 1) + 1)
    return max(stretches, key=len)


def _growth(where: Literal["device", "process"], steps: I8, values: I8) -> MemoryGrowth | None:
    known = values != UNKNOWN
    steps, values = steps[known], values[known]
    if len(steps) < MIN_READINGS:
        return None
    edges = np.linspace(0, len(steps), BLOCKS + 1).astype(np.int64)
    lowest = np.minimum.reduceat(values, edges[:-1])
    rises = np.diff(lowest)
    first, last = lowest[END_BLOCKS - 1] - lowest[0], lowest[-1] - lowest[-END_BLOCKS]
    if rises.min() <= 0 or rises.min() < MIN_OF_MEAN * rises.mean() or last < STEADY * first:
        return None
    middles = (steps[edges[:-1]] + steps[edges[1:] - 1]) / 2
    per_step = float(rises.sum() / max(1.0, middles[-1] - middles[0]))
    after = lowest[0] + per_step * (steps[-1] - steps[0])
    return MemoryGrowth(where, int(steps[0]), int(steps[-1]), int(lowest[0]), int(after), per_step)


def _larger_batches(elements: I8 | None, stretch: I8) -> bool:
    if elements is None:
        return False
    quarter = len(stretch) // 4
    before, after = median(elements[stretch[:quarter]]), median(elements[stretch[-quarter:]])
    return before > 0 and after >= LARGER_BATCHES * before
