"""The device's work in the order in which each stream received it."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import numbered
from traceopt.analyzer.arrays.intervals import EMPTY, Intervals
from traceopt.analyzer.replay.calls import GRAPH_LAUNCH, LAUNCH, Calls
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.launch_links import LaunchLinks

BEFORE = -1  # Queues.call: issued before the window
MOST_STREAMS = 128  # tables of shape (streams, calls) are built; a job has a few dozen streams
EARLY = -(2**60)  # ns: before everything, and far enough from the smallest int64 for additions


class Queues(Struct, frozen=True, dict=True):
    """By stream, then in order of issue, which is the order of start; arrays have shape (len,), times in ns."""

    ids: I8  # the streams, as GpuTable.queue numbers them, shape (streams,)
    row: I8  # of the device's work; -1: work from before the recording, which is not in the file
    stream: I8  # index in ids
    call: I8  # row of Calls that issued it; BEFORE: issued before the window
    launched: I8  # the same if its launch is in the file, else BEFORE
    start: I8
    end: I8

    def __len__(self) -> int:
        return len(self.row)

    @cached_property
    def first(self) -> I8:
        """Where each stream begins, and the end. Shape (streams + 1,)."""
        return np.searchsorted(self.stream, np.arange(len(self.ids) + 1))

    @property
    def streams(self) -> int:
        return len(self.ids)

    @cached_property
    def done(self) -> I8:
        """When each row and all rows before it on its stream had ended."""
        if not len(self):
            return self.end
        return np.concatenate([np.maximum.accumulate(self.end[a:b]) for a, b in self._ranges])

    @cached_property
    def before(self) -> I8:
        """When the stream was free for each row; EARLY for the first. Shape (len,)."""
        earlier = np.append(EARLY, self.done)[:-1]
        earlier[self.first[:-1][self.first[:-1] < len(self)]] = EARLY
        return earlier

    @property
    def _ranges(self) -> list[tuple[int, int]]:
        return list(zip(self.first[:-1].tolist(), self.first[1:].tolist(), strict=True))

    def last_before(self, calls: I8) -> I8:
        """The last row that each stream received before each call, -1: none. Shape (streams, calls)."""
        found = [a + np.searchsorted(self.call[a:b], calls, side="left") - 1 for a, b in self._ranges]
        return self._known(found, len(calls))

    def last_done(self, calls: I8, time: I8) -> I8:
        """Like last_before, among the rows that had ended by a given time."""
        found = [a + np.searchsorted(self.done[a:b], time, side="right") - 1 for a, b in self._ranges]
        return np.minimum(self._known(found, len(calls)), self.last_before(calls))

    def last_begun(self, calls: I8, time: I8) -> I8:
        """Like last_before, among the rows that had started by a given time."""
        found = [a + np.searchsorted(self.start[a:b], time, side="right") - 1 for a, b in self._ranges]
        return np.minimum(self._known(found, len(calls)), self.last_before(calls))

    def latest(self, candidates: I8) -> I8:
        """In each column of candidates (streams, n), the row that ended last; -1: none. Shape (n,)."""
        return _choose(candidates, self.end_of(candidates))

    def newest(self, candidates: I8) -> I8:
        """In each column of candidates (streams, n), the row that was issued last; -1: none. Shape (n,)."""
        if not len(self):
            return np.full(candidates.shape[1], -1)
        return _choose(candidates, np.where(candidates >= 0, self.call[candidates], EARLY))

    def _known(self, found: list[I8], columns: int) -> I8:
        table = np.array(found, np.int64).reshape(self.streams, columns)
        return np.where(table >= self.first[:-1, None], table, -1)

    def end_of(self, rows: I8) -> I8:
        """When the rows ended; EARLY for -1."""
        return np.where(rows >= 0, self.end[rows], EARLY) if len(self) else np.full(rows.shape, EARLY)


def _choose(candidates: I8, score: I8) -> I8:
    if not len(candidates):
        return np.full(candidates.shape[1], -1)
    return np.asarray(candidates[score.argmax(axis=0), np.arange(candidates.shape[1])])


def find_queues(gpu: GpuWork, links: LaunchLinks, calls: Calls, earlier_work: Intervals = EMPTY) -> Queues:
    """What the calls issued, and earlier work that was still running or queued in the window.

    During `earlier_work`, unrecorded work ran on the streams whose own work begins after it.
    """
    launch = links.launch
    call_of_runtime = np.full(len(gpu.trace.runtime) + 1, BEFORE)
    mine = np.flatnonzero((calls.kind == LAUNCH) | (calls.kind == GRAPH_LAUNCH))
    call_of_runtime[calls.row[mine]] = mine
    launched = call_of_runtime[launch]
    late = (
        (launched == BEFORE)
        & (launch >= 0)
        & (np.append(gpu.trace.runtime.start, 0)[launch] >= gpu.launch_window.end[-1])
    )
    ids, stream = _numbered(gpu.work.queue)
    order = np.lexsort((gpu.work.start, stream))
    order = order[~late[order]]
    stream, launched = stream[order].astype(np.int64), launched[order]
    start, end = gpu.work.start[order], gpu.work.end_of(order)
    call = launched.copy()
    for index in range(len(ids)):
        rows = np.flatnonzero(stream == index)
        call[rows] = _issued_with(launched[rows], len(calls) - 1)
    running = np.where(call == BEFORE, end > gpu.launch_window.start[0], True)
    keep = running & ((launched >= 0) | (start < gpu.window.end[-1]))
    queues = Queues(ids, order[keep], stream[keep], call[keep], launched[keep], start[keep], end[keep])
    return _behind_unrecorded_work(queues, earlier_work) if len(earlier_work) else queues


def _behind_unrecorded_work(queues: Queues, earlier_work: Intervals) -> Queues:
    """The queues, with one piece of earlier work before the work that it held up."""
    begin, end = int(earlier_work.start[0]), int(earlier_work.end[-1])
    first = queues.first[:-1][np.diff(queues.first) > 0]
    at = first[queues.start[first] >= end]
    return Queues(
        queues.ids,
        np.insert(queues.row, at, -1),
        np.insert(queues.stream, at, queues.stream[at]),
        np.insert(queues.call, at, BEFORE),
        np.insert(queues.launched, at, BEFORE),
        np.insert(queues.start, at, begin),
        np.insert(queues.end, at, end),
    )


def _numbered(streams: I8) -> tuple[I8, I8]:
    """The ids of the streams and the stream index of each row; beyond MOST_STREAMS, the rarest streams share
    one index.
    """
    ids, stream = numbered(streams)
    if len(ids) <= MOST_STREAMS:
        return ids, stream
    order = np.argsort(-np.bincount(stream), kind="stable")
    place = np.empty(len(ids), np.int64)
    place[order] = np.minimum(np.arange(len(ids)), MOST_STREAMS - 1)
    return ids[order[:MOST_STREAMS]], place[stream]


def _issued_with(launched: I8, last_call: int) -> I8:
    """The issuing call for work of one stream whose launch is not in the window: before the first known launch it was
    issued before the window, later together with the next known launch.
    """
    known = np.flatnonzero(launched != BEFORE)
    if not len(known):
        return launched
    if len(known) == len(launched):
        return np.maximum.accumulate(launched)
    known_before = np.cumsum(launched != BEFORE) - (launched != BEFORE)
    following = np.append(launched[known], last_call)[known_before]
    following[: known[0]] = BEFORE
    return np.maximum.accumulate(following)
