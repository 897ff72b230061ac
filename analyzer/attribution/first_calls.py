"""What happens once, at the start of a run: the driver's context, libraries, loader workers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.attribution.idle import Gaps, Idle, slow_calls
from traceopt.analyzer.tables.launches import calls_named
from traceopt.analyzer.tables.schema import I4, I8, Mask
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP, PYTHON, RUNTIME, Slices
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.vocabulary import op_names, runtime_calls
from traceopt.analyzer.vocabulary.causes.host_names import LOADER_FETCH
from traceopt.analyzer.vocabulary.causes.table import IDLE_CAUSES, MODULE_LOAD, UNRECORDED

# An allocation takes less than a millisecond, unless the driver first creates its context or a library its handle.
CONTEXT_NS = 10_000_000
_NEVER = np.iinfo(np.int64).max


def startup_calls(gpu: GpuWork, gaps: Gaps, slices: Slices) -> Mask:
    """Runtime rows that create the context or initialize a library while the GPU starves: slow calls that neither
    launch nor load code, and slow allocations in the first call of their operator. If later calls of the operators are
    as slow, allocations are slow in every step, which is no start-up.
    """
    trace = gpu.trace
    mask = slow_calls(gpu, gaps) & ~calls_named(
        trace, lambda n: runtime_calls.is_launch(n) or runtime_calls.is_module_load(n)
    )
    runtime = trace.runtime
    slow = np.flatnonzero(calls_named(trace, runtime_calls.is_allocation) & (runtime.duration >= CONTEXT_NS))
    slow = slow[2 * gaps.starved.within(runtime.start[slow], runtime.end_of(slow)) >= runtime.duration[slow]]
    if not len(slow):
        return mask
    op = slices.ancestor(slices.of(RUNTIME, len(runtime))[slow], slices.kind == OP).astype(np.int64)
    before_work = runtime.end_of(slow) <= gpu.work.start.min(initial=_NEVER)
    first = np.where(op >= 0, first_of_name(slices, OP)[op], before_work)
    if 2 * first.sum() >= len(slow):
        mask[slow[first]] = True
    return mask


def first_launches(trace: Trace) -> I8:
    """The launches that the profiler holds up as it starts: the first that ends after each of its overheads, on the
    same thread. Runtime rows.
    """
    runtime = trace.runtime
    overheads = np.flatnonzero(calls_named(trace, runtime_calls.is_profiler_overhead))
    launches = np.flatnonzero(calls_named(trace, runtime_calls.is_launch)) if len(overheads) else overheads
    found = []
    for thread in distinct_values(runtime.thread[overheads]).tolist():
        mine = launches[runtime.thread[launches] == thread]
        ended = np.searchsorted(runtime.end_of(mine), runtime.end_of(overheads[runtime.thread[overheads] == thread]))
        found.append(mine[ended[ended < len(mine)]])
    return np.concatenate(found) if found else overheads


def first_of_name(slices: Slices, kind: int) -> Mask:
    """The first slice of each name among slices of a kind. Shape (len(slices),)."""
    rows = np.flatnonzero(slices.kind == kind)
    rows = rows[np.argsort(slices.start[rows], kind="stable")]
    return slices.mask(rows[np.unique(slices.name[rows], return_index=True)[1]])


def first_fetches(regions: Regions) -> npt.NDArray[np.int64]:
    """The waits for the first batch of a data loader with worker processes, which wait for the workers to start: rows
    of Slices, with the frames of the loader around them.

    A loader's iterator draws the seed of its workers when it is created, so that no launch is between the draw and the
    first wait. If most waits follow a draw, the program itself draws numbers in its loop, and nothing is known about
    its workers.
    """
    slices, names = regions.slices, regions.trace.names
    fetches = regions.named(op_names.is_multiprocess_dataloader, ANNOTATION, OP)
    drawn = np.flatnonzero(regions.named("aten::random_".__eq__, OP))
    following = slices.next_outermost(drawn, fetches)
    launches = np.cumsum(regions.named(runtime_calls.is_launch, RUNTIME))  # slices are in order of thread and time
    first = distinct_values(following[(following >= 0) & (launches[following] == launches[drawn])]).astype(np.int64)
    if 2 * len(first) > max(2, int(fetches.sum())):
        return np.empty(0, np.int64)
    rows = first.tolist()
    for row in rows:  # grows while it is walked: a loader has a few frames
        above = int(slices.parent[row])
        if above >= 0 and slices.kind[above] == PYTHON and LOADER_FETCH(names[slices.name[above]]):
            rows.append(above)
    return np.array(rows, np.int64)


def with_first_runs(idle: Idle, kernel: I4) -> Idle:
    """Idle time in which silence before the first run of a kernel counts as the loading of its code, if the kernel
    follows the same kernel again later, after much less silence. `kernel`: the name of each row of the device's work.
    """
    gaps, silent = idle.gaps, idle.of_gaps(UNRECORDED)
    rows = np.flatnonzero((silent > 0) & (gaps.next_row < len(kernel)) & (gaps.next_row > 0))
    if not len(rows):
        return idle
    wanted = np.zeros(int(kernel.max()) + 1, bool)
    wanted[kernel[gaps.next_row[rows]]] = True
    runs = np.flatnonzero(wanted[kernel[1:]]) + 1
    before = np.zeros(len(runs), np.int64)
    before[np.searchsorted(runs, gaps.next_row[rows])] = silent[rows]
    pairs, first, pair = np.unique(kernel[runs - 1].astype(np.int64) * len(wanted) + kernel[runs], True, True)
    later = np.full(len(pairs), -1)
    again = np.delete(np.arange(len(runs)), first)
    np.maximum.at(later, pair[again], before[again])
    loads = np.isin(gaps.next_row, runs[first[(later >= 0) & (2 * later < before[first])]])
    amount = idle.amount.copy()
    amount[loads, IDLE_CAUSES.index(MODULE_LOAD)] += silent[loads]
    amount[loads, IDLE_CAUSES.index(UNRECORDED)] = 0
    return replace(idle, amount=amount)
