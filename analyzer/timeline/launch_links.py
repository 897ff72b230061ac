"""Links GPU work to the call that launched it and to the operator around that call."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.tables.launches import launch_rows
from traceopt.analyzer.tables.schema import I4, I8, GpuTable, Mask, RuntimeTable
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_tree import OP, RUNTIME, Slices

MAX_DROPPED_SHARE = 0.01  # of the device's work: launches that the profiler dropped in a file that is otherwise whole


class LaunchLinks(Struct, frozen=True):
    """Columns parallel to `trace.gpu`, shape (len(gpu),); -1: unknown.

    Work whose launch is not in the file was launched before the file begins. A launch of a CUDA or HIP graph has many
    rows of work.
    """

    launch: I4  # row of trace.runtime
    launch_slice: I4  # row of Slices
    op: I4  # row of trace.ops: the innermost operator around the launch
    op_slice: I4  # row of Slices of that operator


def link(trace: Trace, slices: Slices) -> LaunchLinks:
    """Joins GPU work to runtime calls by correlation id, then to the operator that encloses the call on its thread.

    Files without correlation ids get them from what else links the two (`reading/finishing/launch_ids.py`).
    """
    launch = launch_rows(trace.gpu.correlation, trace.runtime)
    launch_slice = np.full(len(launch), -1, np.int32)
    known = launch >= 0
    launch_slice[known] = slices.of(RUNTIME, len(trace.runtime))[launch[known]]
    op_slice = slices.ancestor(launch_slice, slices.kind == OP)
    op = np.where(op_slice >= 0, slices.row[np.maximum(op_slice, 0)] if len(slices) else -1, -1)
    return LaunchLinks(launch, launch_slice, op.astype(np.int32), op_slice)


def launched_before(work: GpuTable, orphan: Mask) -> Mask:
    """Orphans (work whose launch is not in the file) before the first work of their stream with a known launch.

    A stream runs in order, so these were launched before the file begins; the launches of later orphans were dropped by
    the profiler. Shape (len(work),).
    """
    streams, stream = np.unique(work.queue, return_inverse=True)
    first = np.full(len(streams), np.iinfo(np.int64).max)
    np.minimum.at(first, stream[~orphan], work.start[~orphan])
    return np.asarray(orphan & (work.start < first[stream]))


def launch_times(work: GpuTable, launch: I4, runtime: RuntimeTable) -> I8:
    """When the host launched each piece of work, ns, shape (len(work),). `launch`: its row of `runtime`, -1: unknown.

    Work whose launch is not in the file counts as launched when it began; if the profiler dropped next to no launches,
    the first such work of a stream was launched before the file begins. If no launch is in the file, nothing is known.
    """
    orphan = launch < 0
    if orphan.all():
        return work.start
    times = np.where(orphan, work.start, runtime.start[np.maximum(launch, 0)])
    before = launched_before(work, orphan)
    if (orphan & ~before).sum() <= MAX_DROPPED_SHARE * len(work):
        times[before] = np.iinfo(np.int64).min
    return times
