"""Calls in which the host interacts with the GPU: launches, blocking calls, stream waits; plus the step borders.

The host is modeled as one flow of control. While autograd's thread launches work, the thread that called `backward()`
is blocked, so the calls of both, in order of time, are what a single thread would do. A thread that runs concurrently
with the training thread is not part of this flow: its launches happen when they happened, take no host time and block
nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from traceopt.analyzer.arrays.columns import Columns
from traceopt.analyzer.tables.schema import I4, I8, U1, Mask
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_tree import OP, RUNTIME, Slices
from traceopt.analyzer.timeline.launch_links import LaunchLinks
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import runtime_calls

BORDER, LAUNCH, GRAPH_LAUNCH, SYNC, STREAM_WAIT = 0, 1, 2, 3, 4
CONCURRENT_SHARE = 0.1  # of a thread's calls that happen while the training thread is active


class Calls(Columns, frozen=True):
    """In order of time; arrays have shape (len,), times in ns. A concurrent call ends when it starts."""

    kind: U1  # BORDER, LAUNCH, ...
    row: I8  # of trace.runtime; -1: a step border
    start: I8
    end: I8
    concurrent: Mask


def find_calls(trace: Trace, slices: Slices, links: LaunchLinks, steps: Steps) -> Calls:
    """The calls that begin inside the window, and the step borders."""
    runtime = trace.runtime
    kind = _by_name(trace, runtime.name)
    launches = links.launch[links.launch >= 0]
    graphs = named(trace, runtime.name[launches], runtime_calls.is_graph_launch)
    kind[launches] = np.where(graphs, GRAPH_LAUNCH, LAUNCH)
    kind[~steps.host_window.contains(runtime.start)] = 0
    rows = _outermost(slices, kind > 0)
    concurrent = np.isin(runtime.thread[rows], _concurrent(trace, slices, steps, rows))
    marks = np.append(steps.host_start, _host_end(trace, steps))
    start = np.concatenate((marks, runtime.start[rows]))
    end = np.concatenate((marks, runtime.start[rows] + np.where(concurrent, 0, runtime.duration[rows])))
    borders = len(marks)
    order = np.argsort(start, kind="stable")  # stable: a border comes before a call at the same time
    return Calls(
        np.concatenate((np.full(borders, BORDER, np.uint8), kind[rows]))[order],
        np.concatenate((np.full(borders, -1), rows))[order],
        start[order],
        end[order],
        np.concatenate((np.zeros(borders, bool), concurrent))[order],
    )


def _host_end(trace: Trace, steps: Steps) -> int:
    """When the host is done with the last step. Without marks, the window goes on until the device is done as well."""
    end = int(steps.host_end[-1])
    if steps.source != "window":
        return end
    tables = (trace.runtime, trace.ops, trace.annotations, trace.python)
    return min(end, max((int(table.end.max()) for table in tables if len(table)), default=end))


def _by_name(trace: Trace, codes: I4) -> U1:
    """SYNC or STREAM_WAIT by the call's name, else 0. Shape (len(codes),)."""
    of_name = np.zeros(len(trace.names) + 1, np.uint8)
    of_name[codes] = 1
    for code in np.flatnonzero(of_name).tolist():
        name = trace.names[code]
        of_name[code] = (
            SYNC if runtime_calls.is_blocking_sync(name) else STREAM_WAIT * runtime_calls.is_stream_wait(name)
        )
    return of_name[codes]


def named(trace: Trace, codes: I4, test: Callable[[str], bool]) -> Mask:
    """Which of these names pass the test. Shape (len(codes),)."""
    passes = np.zeros(len(trace.names) + 1, bool)
    passes[codes] = True
    used = np.flatnonzero(passes)
    passes[used] = [test(trace.names[code]) for code in used]
    return passes[codes]


def _outermost(slices: Slices, wanted: Mask) -> I8:
    """The wanted runtime rows that are not nested in another wanted one (a driver call in a runtime call)."""
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return rows
    mine = slices.mask(slices.of(RUNTIME, len(wanted))[rows])
    return np.sort(slices.row[slices.outermost(mine)]).astype(np.int64)


def _concurrent(trace: Trace, slices: Slices, steps: Steps, rows: I8) -> list[int]:
    """Threads that make calls while the training thread is active: it is in an operator or a call, or begins or ends
    something. While it waits in `backward()` it only has that Python frame open.
    """
    rows = rows[trace.runtime.thread[rows] != steps.thread]
    if not len(rows):
        return []
    thread, start, end = trace.runtime.thread[rows], trace.runtime.start[rows], trace.runtime.end_of(rows)
    mine = slices.of_thread(steps.thread)
    innermost = slices.at(steps.thread, start)
    active = (innermost >= 0) & np.isin(slices.kind[innermost], (OP, RUNTIME))
    for moments in (slices.start[mine], np.sort(slices.end[mine])):
        active |= np.searchsorted(moments, end, "right") > np.searchsorted(moments, start)
    share = np.bincount(thread, weights=active) / np.maximum(np.bincount(thread), 1)
    return [int(one) for one in np.flatnonzero(share > CONCURRENT_SHARE)]
