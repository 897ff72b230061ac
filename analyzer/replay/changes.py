"""The effects of fixes on the graph: small values that are applied one after the other.

Masks and arrays named `work` have the shape of the device's work (facts.gpu.work); `calls` are rows of trace.runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import Intervals, intersect, merge, subtract
from traceopt.analyzer.replay.graph import HOST, Graph, Rows
from traceopt.analyzer.replay.queues import EARLY
from traceopt.analyzer.tables.schema import I8, Mask

F8 = npt.NDArray[np.float64]
LEAST_LEFT = 0.2  # of the host's time between two launches, or of a kernel: recording them does not take all of it


class Change(Protocol):
    """A transformation of the graph's rows."""

    def apply(self, graph: Graph, rows: Rows) -> Rows:
        """Returns the changed rows; the arrays of `rows` must not be modified."""


class RemoveHost(Struct, frozen=True, eq=False):
    """Removes a share of the host's time in an area (measured times). Waits stay.

    `faster`: the same work takes less time, whichever part of it is left. Otherwise a part of the work goes.
    """

    area: Intervals
    share: float = 1.0
    faster: bool = False

    def apply(self, graph: Graph, rows: Rows) -> Rows:
        removed = self.area.within(graph.host_start, graph.host_end)
        return replace(rows, host=np.maximum(rows.host - (self.share * removed).astype(np.int64), 0))


class WithoutRecording(Struct, frozen=True, eq=False):
    """The profiler costs nothing: the host `host_ns` less at each event, the device `device_ns` less at each piece of
    work, first of the pause before it.
    """

    events: I8  # in the host's time before each row of the graph
    host_ns: float
    device_ns: float

    def apply(self, graph: Graph, rows: Rows) -> Rows:
        recorded, works, device_ns = graph.rows.host, graph.work >= 0, int(self.device_ns)
        left = np.maximum(recorded - self.events * self.host_ns, LEAST_LEFT * recorded) / np.maximum(recorded, 1)
        lead = np.where(works, np.maximum(rows.lead - device_ns, np.minimum(rows.lead, 0)), rows.lead)
        rest = np.where(works, device_ns - (rows.lead - lead), 0)
        return replace(
            rows,
            host=(rows.host * left).astype(np.int64),
            lead=lead,
            duration=np.maximum(rows.duration - rest, LEAST_LEFT * rows.duration).astype(np.int64),
        )


class ScaleWork(Struct, frozen=True, eq=False):
    """Scales durations by `factor`: one number, or one per row of the device's work."""

    work: Mask
    factor: float | F8

    def apply(self, graph: Graph, rows: Rows) -> Rows:
        mine = _rows_of(graph, self.work)
        factor = np.broadcast_to(np.asarray(self.factor, np.float64), self.work.shape)[graph.work[mine]]
        duration = rows.duration.copy()
        duration[mine] = np.rint(duration[mine] * factor)
        return replace(rows, duration=duration)


class DropSync(Struct, frozen=True, eq=False):
    """Calls no longer wait for the GPU, but still cost their own time."""

    calls: npt.NDArray[np.integer]

    def apply(self, graph: Graph, rows: Rows) -> Rows:
        waiting = np.flatnonzero((rows.awaits >= 0) & (rows.stream == HOST))
        awaits = rows.awaits.copy()
        awaits[waiting[np.isin(graph.call[waiting], self.calls)]] = -1
        return replace(rows, awaits=awaits)


class AsyncCopy(Struct, frozen=True, eq=False):
    """The host no longer waits for these copies."""

    work: Mask

    def apply(self, graph: Graph, rows: Rows) -> Rows:
        calls = graph.call[_rows_of(graph, self.work)]
        return DropSync(calls[calls >= 0]).apply(graph, rows)


class RemoveLaunches(Struct, frozen=True, eq=False):
    """Removes work together with `dispatch_share` of the host time since the previous launch."""

    work: Mask
    dispatch_share: float = 1.0

    def apply(self, graph: Graph, rows: Rows) -> Rows:
        mine = np.zeros(len(rows), bool)
        mine[_rows_of(graph, self.work)] = True
        profiler = graph.profiler.within(graph.host_start, graph.host_end)
        removed = self.dispatch_share * np.maximum(rows.host - profiler, 0)
        return replace(
            rows,
            host=np.where(mine, rows.host - removed.astype(np.int64), rows.host),
            latency=np.where(mine, EARLY, rows.latency),
            lead=np.where(mine, 0, rows.lead),
            duration=np.where(mine, 0, rows.duration),
            awaits=np.where(mine, -1, rows.awaits),
        )


class MergeKernels(Struct, frozen=True, eq=False):
    """Merges each group of work into one launch that takes `factor` times as long as the group."""

    group: I8  # group of each row of the device's work; -1: in no group
    factor: float | F8  # one number, or one per group
    dispatch_share: float = 1.0

    def apply(self, graph: Graph, rows: Rows) -> Rows:
        mine = _rows_of(graph, self.group >= 0)
        group = self.group[graph.work[mine]]
        total = np.bincount(group, weights=rows.duration[mine], minlength=np.size(self.factor))
        first = np.full(len(total), -1)
        first[group[::-1]] = mine[::-1]
        groups = np.flatnonzero(first >= 0)
        kept = first[groups]
        duration = rows.duration.copy()
        duration[kept] = (total * self.factor)[groups]
        others = np.zeros(len(self.group), bool)
        others[graph.work[mine]] = True
        others[graph.work[kept]] = False
        return RemoveLaunches(others, self.dispatch_share).apply(graph, replace(rows, duration=duration))


class MoveToStream(Struct, frozen=True, eq=False):
    """Moves work of each stream to another one of its own. It starts after the work that its old stream held when it
    was issued, and completes by the end of the step.
    """

    work: Mask

    def apply(self, graph: Graph, rows: Rows) -> Rows:
        moved = np.zeros(len(rows), bool)
        moved[_rows_of(graph, self.work)] = True
        stream, awaits, wake = rows.stream.copy(), rows.awaits.copy(), rows.wake.copy()
        step = np.repeat(np.arange(len(graph.borders)), np.diff(graph.borders, prepend=-1))
        new = int(rows.stream.max()) + 1
        for index, old in enumerate(distinct_values(stream[moved])):  # a few streams
            on_stream = np.flatnonzero(stream == old)
            mine = moved[on_stream]
            stay, go = on_stream[~mine], on_stream[mine]
            before = np.searchsorted(stay, go) - 1
            held = (before >= 0) & (awaits[go] < 0)
            awaits[go[held]], wake[go[held]] = stay[before[held]], rows.lead[go[held]]
            # The first work of the next step waits for the last work that was moved.
            first = np.flatnonzero(np.diff(step[stay], prepend=-1))
            last = np.searchsorted(step[go], step[stay[first]]) - 1
            joins = (last >= 0) & (awaits[stay[first]] < 0)
            awaits[stay[first[joins]]], wake[stay[first[joins]]] = go[last[joins]], 0
            stream[go] = new + index
        return replace(rows, stream=stream, awaits=awaits, wake=wake)


Changes = Sequence[Change]


def apply_all(graph: Graph, changes: Changes) -> Rows:
    """The graph's rows after all changes."""
    rows = graph.rows
    for change in (*host_removals(graph, changes), *(c for c in changes if not isinstance(c, RemoveHost))):
        rows = change.apply(graph, rows)
    return rows


def host_removals(graph: Graph, changes: Changes) -> list[RemoveHost]:
    """The removals of host time, made disjoint: time in several removals is removed once, by the largest share. What is
    left of work that is also faster then shrinks by the largest share of those. The profiler's own time stays.
    """
    removals = [change for change in changes if isinstance(change, RemoveHost)]
    less = _largest(graph, [change for change in removals if not change.faster])
    faster = _largest(graph, [change for change in removals if change.faster])
    out = []
    for one in less:
        rest = one.area
        for two in faster:
            out.append(RemoveHost(intersect(one.area, two.area), 1 - (1 - one.share) * (1 - two.share)))
            rest = subtract(rest, two.area)
        out.append(RemoveHost(rest, one.share))
    for two in faster:
        rest = two.area
        for one in less:
            rest = subtract(rest, one.area)
        out.append(RemoveHost(rest, two.share))
    return out


def _largest(graph: Graph, removals: Sequence[RemoveHost]) -> list[RemoveHost]:
    """Disjoint: each time belongs to the removal with the largest share."""
    taken, out = graph.profiler, []
    for change in sorted(removals, key=lambda c: -c.share):
        out.append(RemoveHost(subtract(change.area, taken), change.share))
        taken = merge(taken, change.area)
    return out


def _rows_of(graph: Graph, work: Mask) -> I8:
    """Changeable rows of the graph whose work is in the mask."""
    return np.asarray(graph.changeable[work[graph.work[graph.changeable]]])
