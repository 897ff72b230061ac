"""The dependency graph of the recorded steps: what the host does and launches, and what waits for what.

The graph is a table of rows in the order in which the host reached them. Every edge points backwards, so one pass over
the rows re-times them (retime.py). The host's time between two rows is one number: operators and Python frames have no
rows.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.columns import Columns
from traceopt.analyzer.arrays.intervals import EMPTY, Intervals
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.replay.calls import BORDER, GRAPH_LAUNCH, LAUNCH, STREAM_WAIT, Calls, find_calls, named
from traceopt.analyzer.replay.lags import find_lags
from traceopt.analyzer.replay.queues import Queues, find_queues
from traceopt.analyzer.replay.waits import SLOW_CALL_NS, HostWaits, find_host_waits, find_stream_waits
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_tree import Slices
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.launch_links import LaunchLinks
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import runtime_calls

HOST = -1  # Rows.stream
OWN_NS = 5_000  # what a waiting call costs in addition
MIN_SETTLED = 2  # steps after the first: with fewer, the first counts as well


class Rows(Columns, frozen=True):
    """What a change may alter; arrays have shape (len,), times in ns.

    A row is work on a stream, or only the host (`stream` HOST): a wait or a step border. First the host works for
    `host` ns. The work starts `latency` later, but not before `lead` after the previous work on its stream, and not
    before `wake` after the end of the row that it `awaits`. Host-only rows wait for `awaits` in the same way.
    """

    host: I8
    stream: I8
    latency: I8
    lead: I8
    duration: I8
    awaits: I8  # -1: nothing
    wake: I8


class Graph(Struct, frozen=True, dict=True):
    """`rows[:fixed]` were issued before the window: their times stay as measured."""

    rows: Rows
    host_start: I8  # of each row: where its `host` time began, ns
    work: I8  # of each row: the row of the device's work; -1: none
    call: I8  # of each row: the row of trace.runtime; -1: none
    inferred: Mask  # the wait of a row is inferred, not recorded
    call_cost: I8  # of each row: the part of its `host` time that is the call itself, ns
    blocked_ns: int  # in calls that can wait, beyond their usual cost, though no work explains it; part of `host`
    unexplained: I8  # how much later than the graph explains the work of a row started, ns
    measured_end: I8  # of each row: when its work ended, or how far the host was
    fixed: int
    borders: I8  # the row that begins the first step and the rows that end a step; shape (steps + 1,)
    profiler: Intervals  # when the profiler delayed the host; no change removes this
    typical: I8  # indices of the typical steps

    @cached_property
    def settled(self) -> I8:
        """Indices of the steps whose mean is the duration of a replayed step: the typical ones without the first
        recorded step, which has none before it that it could overlap with. With few steps it counts as well.
        """
        later = self.typical[self.typical > 0]
        return later if len(later) >= MIN_SETTLED else self.typical

    @cached_property
    def changeable(self) -> I8:
        """Rows that are work issued in the window, which changes may alter."""
        return self.fixed + np.flatnonzero(self.work[self.fixed :] >= 0)

    @cached_property
    def host_end(self) -> I8:
        """Where the `host` time of each row ended, ns."""
        return self.host_start + self.rows.host

    @cached_property
    def _runs(self) -> Runs:
        return find_runs(self.rows, self.fixed)

    def runs(self, rows: Rows) -> Runs:
        """Runs of changed rows. The runs of the graph stay valid if rows only stopped waiting."""
        own = self.rows
        same_waits = rows.awaits is own.awaits or bool(((rows.awaits < 0) | (rows.awaits == own.awaits)).all())
        return self._runs if rows.stream is own.stream and same_waits else find_runs(rows, self.fixed)


class Runs(Struct, frozen=True):
    """Runs of consecutive rows on one stream, of which only the first may wait for another row and only the last is
    awaited. `first` and `last` row of each run.
    """

    first: I8
    last: I8

    @property
    def size(self) -> I8:
        return self.last + 1 - self.first

    def of(self, rows: I8) -> I8:
        """The run of each row."""
        return np.searchsorted(self.last, rows)


def find_runs(rows: Rows, fixed: int) -> Runs:
    """The longest possible runs; rows issued before the window and host-only rows are runs of their own."""
    awaited = np.zeros(len(rows), bool)
    awaited[rows.awaits[rows.awaits >= 0]] = True
    begins = np.ones(len(rows) + 1, bool)
    begins[1:-1] = (rows.stream[1:] != rows.stream[:-1]) | (rows.stream[1:] == HOST) | (rows.awaits[1:] >= 0)
    begins[1:-1] |= awaited[:-1]
    begins[: fixed + 1] = True
    first = np.flatnonzero(begins)
    return Runs(first[:-1], first[1:] - 1)


def build_graph(
    trace: Trace,
    slices: Slices,
    links: LaunchLinks,
    gpu: GpuWork,
    steps: Steps,
    profiler: Intervals = EMPTY,
    earlier_work: Intervals = EMPTY,
) -> Graph:
    """Builds the graph of the recorded steps."""
    calls = find_calls(trace, slices, links, steps)
    queues = find_queues(gpu, links, calls, earlier_work)
    waits = find_host_waits(trace, gpu, calls, queues)
    own = _own_cost(calls, queues, waits)
    host_start, host = _host_time(calls, queues, waits, own)
    issued_at = (calls.start + own)[queues.call]
    own_time = (calls.kind[queues.launched] == GRAPH_LAUNCH) | gpu.is_communication[queues.row]
    lags = find_lags(queues, issued_at, own_time, *find_stream_waits(trace, calls, queues))

    # One row for each piece of work, wait and border; for the same call in this order.
    borders = np.flatnonzero(calls.kind == BORDER)
    sizes = (len(queues), len(waits), len(borders))
    call = np.concatenate((queues.call, waits.call, borders))
    part = np.repeat(np.arange(3, dtype=np.uint8), sizes)
    order = np.lexsort((np.concatenate((queues.start, waits.target, borders)), part, call))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    call = call[order]
    first_of_call = np.append(True, call[1:] != call[:-1]) & (call >= 0)

    def column(*values: I8 | Mask | int) -> I8:
        """One column of the rows, from the values for work, waits and borders."""
        parts = [np.broadcast_to(np.asarray(v, np.int64), size) for v, size in zip(values, sizes, strict=True)]
        return np.concatenate(parts)[order]

    rows = Rows(
        host=np.where(first_of_call, host[call], 0),
        stream=column(queues.stream, HOST, HOST),
        latency=column(lags.latency, 0, 0),
        lead=column(lags.lead, 0, 0),
        duration=column(queues.end - queues.start, 0, 0),
        awaits=column(np.where(lags.awaits >= 0, place[lags.awaits], -1), place[waits.target], -1),
        wake=column(lags.wake, waits.wake, 0),
    )
    return Graph(
        rows=rows,
        host_start=host_start[call],
        work=column(queues.row, -1, -1),
        call=np.where(call >= 0, calls.row[call], -1),
        inferred=column(lags.inferred, waits.inferred, 0).astype(bool),
        call_cost=np.where(first_of_call, np.minimum(own, host)[call], 0),
        blocked_ns=_blocked_ns(trace, calls, own),
        unexplained=column(lags.unexplained, 0, 0),
        measured_end=column(queues.end, calls.end[waits.call], calls.start[borders]),
        fixed=int((call < 0).sum()),
        borders=place[-len(borders) :],
        profiler=profiler,
        typical=steps.typical_rows,
    )


def _own_cost(calls: Calls, queues: Queues, waits: HostWaits) -> I8:
    """Host time of each call without waiting. Shape (calls,), ns."""
    own = calls.end - calls.start
    call, target = waits.call[waits.blocked], waits.target[waits.blocked]
    # A blocking copy spends its own time before the copy starts, if the stream is free by then.
    staging = queues.start[target] - np.maximum(queues.before[target], calls.start[call])
    cost = np.where(calls.kind[call] == LAUNCH, _usual_launch_ns(calls, own), OWN_NS)
    cost = np.where(queues.launched[target] == call, np.maximum(staging, 0), cost)
    own[call] = np.minimum(own[call], cost)
    return own


def _usual_launch_ns(calls: Calls, own: I8) -> int:
    """What a launch costs if nothing blocks it."""
    quick = own[(calls.kind == LAUNCH) & (own < SLOW_CALL_NS)]
    return int(median(quick)) if len(quick) else OWN_NS


def _blocked_ns(trace: Trace, calls: Calls, own: I8) -> int:
    """Host time in calls that took far longer than such calls do by themselves, though no wait explains it, ns.

    Calls that allocate or free memory are left out: they can take this long by themselves.
    """
    graphs = own[calls.kind == GRAPH_LAUNCH]  # launching a graph costs time for each of its nodes
    usual_graph = int(median(graphs)) if len(graphs) else OWN_NS
    usual = np.choose(calls.kind, (0, _usual_launch_ns(calls, own), usual_graph, OWN_NS, 0))  # by kind of call
    can_wait = (calls.kind != BORDER) & (calls.kind != STREAM_WAIT) & ~calls.concurrent
    can_wait[can_wait] = ~named(trace, trace.runtime.name[calls.row[can_wait]], runtime_calls.is_allocation)
    late = (own - usual)[can_wait]
    return int(late[late >= SLOW_CALL_NS].sum())


def _host_time(calls: Calls, queues: Queues, waits: HostWaits, own: I8) -> tuple[I8, I8]:
    """Where the host's time before each call begins, and how long it works until the call is made.

    Calls that neither issue nor await anything are part of that time. Shape (calls,), ns.
    """
    has_rows = calls.kind == BORDER
    has_rows[queues.call[queues.call >= 0]] = True
    has_rows[waits.call] = True
    reached = np.maximum.accumulate(np.where(has_rows, calls.end, calls.start[0]))
    begin = np.append(calls.start[0], reached[:-1])
    return begin, np.maximum(calls.start + own - begin, 0)
