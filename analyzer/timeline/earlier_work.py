"""Work from before the recording: at its beginning, the GPU may still run work that is not in the file."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, subtract, union
from traceopt.analyzer.tables.launches import calls_named
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.launch_links import LaunchLinks
from traceopt.analyzer.vocabulary import runtime_calls

LONG_NS = 1_000_000  # an idle GPU starts work within microseconds of its launch, and a sync on it returns as soon
MIN_SHARE = 0.5  # of the time until it ends: the wait that shows it. With less, the rest may be something else
MAX_BUSY_SHARE = 0.01  # of the same time: work in the file that ran meanwhile
STAGED_BYTES_PER_NS = 1  # the host copies pageable memory at 1 GB/s or faster; a copy takes this long without waiting


def find_earlier_work(trace: Trace, links: LaunchLinks) -> Intervals:
    """One interval in ns, from the host's first event to the end of the earlier work; EMPTY: nothing shows such work.

    The first work of a stream that does not start although it is launched, or a host that waits for the GPU, shows that
    the GPU works. If the file holds no work for that time, the work is from before the recording.
    """
    runtime, gpu = trace.runtime, trace.gpu
    if not len(runtime) or not len(gpu):
        return EMPTY
    tables = (runtime, trace.ops, trace.annotations, trace.python)
    begin = min(int(table.start.min()) for table in tables if len(table))
    busy = union(gpu.start, gpu.end)
    waits = subtract(union(*_waits(trace, links)), busy)
    before = busy.within(np.full(len(waits), begin), waits.end)
    span = waits.end - begin
    shows = (waits.length >= LONG_NS) & (waits.length >= MIN_SHARE * span) & (before <= MAX_BUSY_SHARE * span)
    shows &= (waits.end < gpu.end.max()) & (waits.start < _first_lost_launch(trace, links))
    end = waits.end[shows]
    return union(np.array([begin]), end[-1:]) if len(end) else EMPTY


def _waits(trace: Trace, links: LaunchLinks) -> tuple[I8, I8]:
    """When work or the host waited for the GPU: start and end, ns."""
    runtime, gpu = trace.runtime, trace.gpu
    first = np.unique(gpu.queue, return_index=True)[1]  # the table is in order of start
    first = first[links.launch[first] >= 0]
    launched = runtime.end_of(links.launch[first])
    blocks = calls_named(trace, runtime_calls.is_blocking_sync) & ~calls_named(trace, runtime_calls.is_allocation)
    calls = np.flatnonzero(blocks & (runtime.duration >= LONG_NS))
    since = runtime.start[calls] + _bytes_copied(trace, links)[calls] // STAGED_BYTES_PER_NS
    return np.append(launched, since), np.append(gpu.start[first], runtime.end_of(calls))


def _bytes_copied(trace: Trace, links: LaunchLinks) -> I8:
    """Bytes of the copies and fills of each runtime call."""
    gpu, launch = trace.gpu, links.launch
    known = (launch >= 0) & (gpu.bytes > 0)
    return np.bincount(launch[known], gpu.bytes[known], len(trace.runtime)).astype(np.int64)


def _first_lost_launch(trace: Trace, links: LaunchLinks) -> int:
    """When a kernel or graph was launched for the first time that the file does not hold: later waits may be for it."""
    lost: Mask = calls_named(
        trace, lambda name: runtime_calls.is_kernel_launch(name) or runtime_calls.is_graph_launch(name)
    )
    lost[links.launch[links.launch >= 0]] = False
    return int(trace.runtime.start[lost].min(initial=np.iinfo(np.int64).max))
