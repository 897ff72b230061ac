"""What each CPU thread did, as exclusive sets of intervals: the host's side of every idle gap."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, merge, subtract, union
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP, PYTHON, RUNTIME, Slices
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.host_names import (
    IMAGE_OPENER,
    IMAGE_WORK,
    IMAGE_WRITER,
    SQL_COMMIT,
    SQL_EXECUTE,
    SQL_FETCH,
)
from traceopt.analyzer.vocabulary.causes.table import HOST_ACTIVITIES, INPUT_WORK

FREES_NS = 200_000  # a shorter pause after a call is the program's own
LONG_UPDATE_NS = 1_000_000  # an Optimizer.step that updates nothing takes less


class Host(Struct, frozen=True, dict=True):
    """The activities of all threads. `known` (activity -> rows of Slices) overrides names; the last one counts."""

    trace: Trace
    slices: Slices
    known: Mapping[Cause, npt.NDArray[np.integer]]

    @cached_property
    def activity(self) -> npt.NDArray[np.int8]:
        """Index in HOST_ACTIVITIES of the first activity that matches each slice's name; -1: none. Shape (len,)."""
        of_name = np.full((RUNTIME + 1, len(self.trace.names) + 1), -1, np.int8)
        for kind, matcher in ((PYTHON, "frame"), (ANNOTATION, "annotation"), (OP, "op"), (RUNTIME, "runtime")):
            codes = self.slices.name_codes(kind)
            of_name[kind, codes] = [_first_match(self.trace.names[code], matcher) for code in codes]
        out: npt.NDArray[np.int8] = of_name[self.slices.kind, self.slices.name]
        for cause, rows in self.known.items():
            out[rows] = HOST_ACTIVITIES.index(cause)
        return out

    def of_thread(self, thread: int) -> dict[Cause, Intervals]:
        """Exclusive activities of one thread: they do not overlap and cover everything that was traced."""
        known = self._by_thread.get(thread)
        if known is None:
            known = self._by_thread[thread] = self._paint(thread)
        return known

    @cached_property
    def _by_thread(self) -> dict[int, dict[Cause, Intervals]]:
        return {}

    def _paint(self, thread: int) -> dict[Cause, Intervals]:
        mine = self.slices.of_thread(thread)
        activity = self.activity[mine]
        taken = EMPTY
        painted = {}
        for index, cause in enumerate(HOST_ACTIVITIES):
            rows = mine.start + np.flatnonzero(activity == index)
            end = self.freed(rows) if cause is INPUT_WORK else self.slices.end[rows]
            area = union(self.slices.start[rows], end)
            painted[cause] = subtract(area, taken)
            taken = merge(taken, area)
        return painted

    def rows_of(self, cause: Cause) -> npt.NDArray[np.int64]:
        """The outermost slices of an activity, in order of thread and time.

        Frames of another cycle may cross the end of an event. Where two slices cross for most of their time, the one
        that encloses more stands for both, so that the time counts once.
        """
        rows, slices = self.slices.outermost(self.activity == HOST_ACTIVITIES.index(cause)), self.slices
        start, end, thread = slices.start[rows], slices.end[rows], slices.thread[rows]
        shorter = np.minimum(end[1:] - start[1:], end[:-1] - start[:-1])
        twice = np.flatnonzero((thread[1:] == thread[:-1]) & (2 * (end[:-1] - start[1:]) > shorter))
        inside = slices.enclosed(rows)
        return np.delete(rows, np.where(inside[twice] < inside[twice + 1], twice, twice + 1))

    def freed(self, rows: npt.NDArray[np.integer]) -> I8:
        """When what these calls held is freed. A function's tensors are freed after it returns, which can take
        milliseconds: the thread shows nothing until its next event. To free them takes no longer than the call.
        """
        slices = self.slices
        start, end, thread, parent = (of[rows] for of in (slices.start, slices.end, slices.thread, slices.parent))
        until: I8 = end.copy()
        for one in distinct_values(thread).tolist():
            mine, events = thread == one, slices.start[slices.of_thread(one)]
            following = np.append(events, np.iinfo(np.int64).max)[np.searchsorted(events, end[mine])]
            until[mine] = np.where(parent[mine] >= 0, np.minimum(slices.end[parent[mine]], following), end[mine])
        pause = until - end
        frees = (pause >= FREES_NS) & (pause <= end - start)
        until[~frees] = end[~frees]
        return until


def prepared_output(regions: Regions) -> npt.NDArray[np.int64]:
    """Calls that prepare what their function writes: those of image libraries in a function that writes an image and
    opens none, and SQL statements in one that commits and fetches nothing.
    """
    slices = regions.slices
    wanted = np.zeros(len(slices), bool)
    function = slices.name[slices.parent]
    for matchers in ((IMAGE_WORK, IMAGE_WRITER, IMAGE_OPENER), (SQL_EXECUTE, SQL_COMMIT, SQL_FETCH)):
        prepares, writes, reads = (regions.named(matcher, PYTHON) & (slices.parent >= 0) for matcher in matchers)
        wanted |= prepares & np.isin(function, np.setdiff1d(function[writes], function[reads]))
    return np.flatnonzero(wanted)


def training_functions(regions: Regions) -> npt.NDArray[np.int64]:
    """Python frames around a backward pass or an optimizer step: whatever their names, they do not prepare input."""
    slices = regions.slices
    trains = slices.encloses(regions.engine | regions.backward | regions.optimizer)
    return np.flatnonzero((slices.kind == PYTHON) & trains)


def cpu_optimizers(regions: Regions) -> npt.NDArray[np.int64]:
    """Long calls of Optimizer.step that launch no kernel, as of an optimizer whose states are kept on the host."""
    slices, links = regions.slices, regions.links
    if not (links.launch_slice >= 0).any():
        return np.empty(0, np.int64)
    launches = slices.mask(links.launch_slice[regions.gpu.is_kernel & (links.launch_slice >= 0)])
    rows = slices.outermost(regions.optimizer & ~slices.encloses(launches)).astype(np.int64)
    return rows[slices.duration_of(rows) >= LONG_UPDATE_NS]


def _first_match(name: str, kind: str) -> int:
    return next((i for i, cause in enumerate(HOST_ACTIVITIES) if getattr(cause.names, kind)(name)), -1)
