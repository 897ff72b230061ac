"""Collectives of different kinds that share a communicator: it runs one at a time, so one kind waits for the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from traceopt.analyzer.communication.collectives import CollectiveCalls
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import Slices
from traceopt.analyzer.timeline.gpu_work import GpuWork

SOON_NS = 30_000  # a collective that was only held up by another starts this soon after it


class SerializedKinds(Struct, frozen=True):
    """Collectives of one kind that were launched, but waited for one of another kind on the same communicator."""

    waiting: str  # kind
    ahead: str  # the kind that it waits for
    rows: I8  # the waiting collectives: rows of the device's work
    waits_ns: I8  # time between launch and the end of the collective ahead
    exposed_ns: I8  # the exposed time that an earlier start could save


def find_serialized(collectives: Sequence[CollectiveCalls], gpu: GpuWork, slices: Slices) -> list[SerializedKinds]:
    """Pairs of kinds, most exposed time first.

    A communicator is a process group, or a stream if groups were not recorded. A collective waits for the one ahead of
    it if the host had launched it before that one ended, and it started at that end, with no kernel in between whose
    result it could have waited for. Side by side, the one ahead would
    still expose what it exposes. Only an all-gather behind a reduce-scatter also saves that: the next layer waits for
    its weights, and nothing waits for the gradients yet.
    """
    if len(collectives) < 2:
        return []
    rows = np.concatenate([calls.rows for calls in collectives])
    launch = np.concatenate([calls.launch for calls in collectives])
    kind = np.repeat(np.arange(len(collectives)), [calls.calls for calls in collectives])
    work = gpu.work
    group, stream = work.process_group[rows], work.queue[rows]
    communicator = np.where(group >= 0, -1 - group.astype(np.int64), stream)  # streams are not negative
    order = np.lexsort((work.start[rows], communicator))
    rows, launch, kind, communicator = rows[order], launch[order], kind[order], communicator[order]
    start, end = work.start[rows], work.end_of(rows)
    launched, known = start.copy(), launch >= 0
    launched[known] = slices.end[launch[known]]
    ahead_end = end[:-1]
    held = (communicator[1:] == communicator[:-1]) & (kind[1:] != kind[:-1])
    held &= (launched[1:] < ahead_end) & (np.abs(start[1:] - ahead_end) <= SOON_NS)
    computed = np.sort(work.end_of(np.flatnonzero(gpu.is_compute)))
    held &= np.searchsorted(computed, ahead_end) == np.searchsorted(computed, start[1:], side="right")
    second = np.flatnonzero(held) + 1
    ready = np.maximum(launched[second], start[second - 1])
    waits = end[second - 1] - ready
    names = np.array([calls.name for calls in collectives])
    needed = (names[kind[second]] == "all_gather") & (names[kind[second - 1]] == "reduce_scatter")
    since = np.where(needed, ready, start[second])
    exposed = np.minimum(waits, gpu.exposed_communication.within(since, end[second]))
    out = []
    for waiting, ahead in sorted(set(zip(kind[second].tolist(), kind[second - 1].tolist(), strict=True))):
        mine = (kind[second] == waiting) & (kind[second - 1] == ahead)
        out.append(
            SerializedKinds(str(names[waiting]), str(names[ahead]), rows[second[mine]], waits[mine], exposed[mine])
        )
    return sorted(out, key=lambda one: -int(one.exposed_ns.sum()))
