"""Sends and receives between pipeline stages: how long the device waits in them for another stage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import numbered
from traceopt.analyzer.communication.collectives import CollectiveCalls
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP, PYTHON
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.vocabulary import library_frames, op_names

SEND_RECV = "send_recv"
# A transfer takes no longer than this on an ordinary network of a cluster. What takes longer waits for the other side.
BYTES_PER_NS, LATENCY_NS = 10.0, 50_000


class StageWaits(Struct, frozen=True):
    """Sends and receives inside the window. Arrays have shape (calls,), times in ns."""

    rows: I8  # of the device's work
    launch: I8  # the slice that started each
    waits_ns: I8  # exposed time minus the transfer

    @property
    def total_ns(self) -> int:
        return int(self.waits_ns.sum())

    def within(self, rows: I8) -> I8:
        """The wait in each of these rows of the device's work, which are in order and hold all calls; 0 in others."""
        out = np.zeros(len(rows), np.int64)
        out[np.searchsorted(rows, self.rows)] = self.waits_ns
        return out


NO_STAGE_WAITS = StageWaits(*(np.empty(0, np.int64) for _ in range(3)))


def find_stage_waits(collectives: Sequence[CollectiveCalls], regions: Regions) -> StageWaits:
    """The waits on a GPU.

    An all-to-all runs the same kernels, so only calls that are known to be sends or receives count.
    """
    calls = next((calls for calls in collectives if calls.name == SEND_RECV), None)
    if calls is None:
        return NO_STAGE_WAITS
    called = regions.named(op_names.is_point_to_point, OP, ANNOTATION)
    called |= regions.named(library_frames.is_point_to_point_frame, PYTHON)
    mine = np.flatnonzero(regions.slices.ancestor(calls.launch, called) >= 0)  # so their launches are known
    return _waits(calls, mine, regions.gpu.work.duration[calls.rows[mine]])


def find_cpu_stage_waits(collectives: Sequence[CollectiveCalls]) -> StageWaits:
    """The waits of the training thread; `rows` are slices."""
    calls = next((calls for calls in collectives if calls.name == SEND_RECV), None)
    return NO_STAGE_WAITS if calls is None else _waits(calls, np.arange(calls.calls), calls.duration)


def _waits(calls: CollectiveCalls, mine: I8, duration: I8) -> StageWaits:
    """The shortest call of a size shows how long its transfer takes."""
    size = calls.bytes[mine]
    sizes, group = numbered(size)
    shortest = np.full(len(sizes), np.iinfo(np.int64).max)
    np.minimum.at(shortest, group, duration)
    transfer = np.where(size >= 0, size / BYTES_PER_NS + LATENCY_NS, np.inf)
    waits = np.maximum(calls.exposed[mine] - np.minimum(shortest[group], transfer), 0)
    return StageWaits(calls.rows[mine], calls.launch[mine], waits.astype(np.int64))
