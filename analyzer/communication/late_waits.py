"""Collectives that wait for another rank, as one rank's trace shows it: others of their kind and size are fast."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import numbered, split
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.communication.collectives import CollectiveCalls
from traceopt.analyzer.communication.stage_waits import SEND_RECV
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.steps import Steps

UNEVEN = "all_to_all"  # each rank may put in another size; how much the others put in is not recorded
LARGE_BYTES = 1 << 20  # the time of a smaller buffer says little about the link
LEAST_CALLS = 4  # of a kind, so that most of them show what the link does
SLOWER = 4.0  # times what the size takes in most calls: no link becomes so slow for a single call


class LateWaits(Struct, frozen=True):
    """Calls that wait, in order of time. `rows`, `waits_ns` and `slower` have shape (calls,)."""

    rows: I8  # of the device's work
    waits_ns: I8  # beyond what the size takes in most calls
    slower: I8  # how many times as long they take
    exposed_ns: I8  # by step: what is exposed from the first such call on, at most the waits; shape (steps,)

    @property
    def step_ns(self) -> float:
        return float(self.exposed_ns.mean()) if len(self.exposed_ns) else 0.0


def find_late_waits(collectives: Sequence[CollectiveCalls], gpu: GpuWork, steps: Steps) -> LateWaits:
    """The waits on a GPU. A collective that waits holds up those behind it, so they are exposed in its place."""
    found = [(np.empty(0, np.int64),) * 3]
    for calls in collectives:
        large = np.flatnonzero(calls.bytes >= LARGE_BYTES)
        if calls.name in (SEND_RECV, UNEVEN):
            continue
        groups, group = numbered(gpu.work.process_group[calls.rows[large]])  # each may have a link of its own
        for mine in split(large, group, len(groups)):
            if len(mine) < LEAST_CALLS:
                continue
            rows, size = calls.rows[mine], calls.bytes[mine]
            took = gpu.work.duration[rows]
            usual = size * median(took / size)
            late = took >= SLOWER * usual
            found.append((rows[late], (took - usual)[late].astype(np.int64), (took / usual)[late].astype(np.int64)))
    rows, waits, slower = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.argsort(gpu.work.start[rows], kind="stable")
    rows, waits, slower = rows[order], waits[order], slower[order]
    step = steps.step_of(gpu.work.start[rows])
    first = np.full(steps.count, np.iinfo(np.int64).max)
    np.minimum.at(first, step[step >= 0], gpu.work.start[rows[step >= 0]])
    begin = np.minimum(np.maximum(first, steps.start), steps.end)
    exposed = gpu.exposed_communication.within(begin, steps.end)
    return LateWaits(rows, waits, slower, np.minimum(exposed, steps.per_step(step, waits)))
