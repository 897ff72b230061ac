"""Maps slices of CPU threads to the lines of code behind them: the user's and, by default, those of a model that a
library ships (`python_frames` has the order of preference). Never torch, never Python's own modules.

There are three sources, best first: Python frames around the slice; the call stack that the 2021 format stores in
operators; for a backward operator, the call site of its forward operator (same autograd sequence number, else the
profiler's arrow).

A Python frame is named after the line where its function begins. If `traceopt run` recorded caller lines, a site is the
line of the call; for work between two calls of a function, it is the range of lines between them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import distinct_values, group_rows
from traceopt.analyzer.tables.schema import I4, I8
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP, PYTHON, Slices
from traceopt.analyzer.vocabulary import library_frames
from traceopt.analyzer.vocabulary.python_frames import (
    is_library,
    is_library_file,
    is_model_library,
    is_place,
    parse_frame,
)
from traceopt.result.finding import Location


class CallSites(Struct, frozen=True, dict=True):
    """Call sites of slices, as indices into `sites`; -1 if unknown."""

    trace: Trace
    slices: Slices
    wanted: Callable[[str], bool] = is_place  # which frames may be sites

    @cached_property
    def recorded(self) -> bool:
        """Whether the trace has any stacks to find call sites in."""
        return len(self.trace.python) > 0 or bool((self.trace.ops.stack >= 0).any())

    @property
    def lines_recorded(self) -> bool:
        """Whether sites are lines of calls; otherwise they are lines where functions begin."""
        return bool((self.trace.python.call_line > 0).any())

    @cached_property
    def sites(self) -> list[Location]:
        return []

    @cached_property
    def _site_index(self) -> dict[Location, int]:
        return {}

    @cached_property
    def _site_of_name(self) -> I4:
        """For every name of the trace, the site if it is a wanted frame; else -1."""
        out = np.full(len(self.trace.names), -1, np.int32)
        for code in distinct_values(self.trace.python.name):
            name = self.trace.names[code]
            if self.wanted(name):
                site = parse_frame(name)
                begins = site is not None and site.function is not None and site.function.isidentifier()
                out[code] = self.add(replace(site, begins=begins) if site is not None else None)
        return out

    def add(self, site: Location | None) -> int:
        """The index of a site, which is added if it is new; -1 for None."""
        if site is None:
            return -1
        known = self._site_index.get(site)
        if known is None:
            known = self._site_index[site] = len(self.sites)
            self.sites.append(site)
        return known

    @cached_property
    def code_frames(self) -> npt.NDArray[np.bool_]:
        """Slices that are wanted frames: of the user's or a model's code. Shape (len(slices),)."""
        return np.asarray(self._frame_site >= 0)

    @cached_property
    def _frame_site(self) -> I4:
        """For every slice that is a wanted frame, its site; else -1. Shape (len(slices),)."""
        return np.where(self.slices.kind == PYTHON, self._site_of_name[self.slices.name], -1).astype(np.int32)

    @cached_property
    def _nearest_frame(self) -> I4:
        """For every slice, the innermost wanted frame around it."""
        return self.slices.nearest(self.code_frames)

    @cached_property
    def _site_of_stack(self) -> I4:
        """For every slice, the site in its own call stack; -1 if it has none."""
        text = np.full(len(self.slices), -1, np.int32)
        for kind, table in ((OP, self.trace.ops), (ANNOTATION, self.trace.annotations)):
            mine = self.slices.kind == kind
            text[mine] = table.stack[self.slices.row[mine]]
        stacks, of_slice = np.unique(text, return_inverse=True)
        sites = [self._stack_site(self.trace.texts[stack]) if stack >= 0 else -1 for stack in stacks]
        return np.array(sites, np.int32)[of_slice]

    @cached_property
    def _nearest_stack(self) -> I4:
        """For every slice, the innermost slice around it whose call stack contains user code."""
        return self.slices.nearest(self._site_of_stack >= 0)

    def of(self, rows: npt.NDArray[np.integer]) -> I4:
        """Call site of each slice; for a frame of the user's code, that frame itself. Shape (len(rows),).

        For a backward operator it is the line of its forward operator, even if the engine runs in the calling thread.
        """
        if not self.recorded:
            return np.full(len(rows), -1, np.int32)
        site = self._direct(rows)
        unknown = np.flatnonzero(((site < 0) | self._run_by_engine(rows)) & (rows >= 0))
        if len(unknown):
            forward = self.forward_of(rows[unknown])
            site[unknown] = np.where(forward >= 0, self._direct(forward), site[unknown])
        return site

    def at_known_lines(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        """Which of these slices have the line of a call as their site; the others have a function, or a range of lines
        between two calls. Shape (len(rows),).
        """
        if not len(self.slices) or not self.recorded:
            return np.zeros(len(rows), bool)
        frame = self._nearest_frame[rows]
        first, last = self._lines(rows, np.maximum(frame, 0))
        return np.asarray(np.where(frame >= 0, (first > 0) & (first == last), self._nearest_stack[rows] >= 0))

    def _run_by_engine(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        """Slices of a backward operator that have no user frame inside the engine's call: the next user frame called
        the engine.
        """
        if not len(self.slices):
            return np.zeros(len(rows), bool)
        engine = self._nearest_engine[rows]
        return np.asarray((engine >= 0) & (self._nearest_backward[rows] >= 0) & (self._nearest_frame[rows] < engine))

    @cached_property
    def _nearest_engine(self) -> I4:
        """For every slice, the call of the autograd engine around it."""
        named = np.array([library_frames.is_engine_frame(name) for name in self.trace.names] or [False])
        return self.slices.nearest((self.slices.kind == PYTHON) & named[self.slices.name])

    def of_own_time(self, rows: npt.NDArray[np.integer], time: I8) -> I4:
        """Call site of each slice at a time when no other slice runs inside it: for a frame of the user's code, the
        lines between its calls before and after that time. Shape (len(rows),).
        """
        out = self.of(rows)
        mine = np.flatnonzero(self.code_frames[rows])
        frames, slices = rows[mine], self.slices
        following = np.empty(len(mine), np.int64)
        for thread in distinct_values(slices.thread[frames]):
            begun = slices.of_thread(thread)
            here = slices.thread[frames] == thread
            following[here] = begun.start + np.searchsorted(slices.start[begun], time[mine[here]], side="right")
        first, last = self._calls_around(following, frames)
        between = (first > 0) & (last >= first)
        return self._at_lines(out, mine[between], first[between], last[between])

    def calling(self, rows: npt.NDArray[np.integer]) -> I4:
        """Site that each slice was called from: for a frame of the user's code, the line in the frame around it.

        The same as `of` if there is no such frame. Shape (len(rows),).
        """
        parent = self.slices.parent[rows]
        around = np.where(self.code_frames[rows] & (parent >= 0), self._nearest_frame[parent], -1)
        return np.where(around >= 0, self._in_frames(rows, around), self.of(rows))

    def most_frequent(self, rows: npt.NDArray[np.integer]) -> Location | None:
        """The call site of most of these slices; None if none is known."""
        sites = self.of(rows)
        known = sites[sites >= 0]
        return self.sites[int(np.bincount(known).argmax())] if len(known) else None

    def user_caller_of(self, file: str, function: str | None) -> Location | None:
        """The user's line that most often calls a function of a model's code; None for a function of the user."""
        if not is_library_file(file):
            return None
        named = np.array([(site.file, site.function) == (file, function) for site in self.sites] or [False])
        frame, stack = self._frame_site, self._site_of_stack
        inside = ((frame >= 0) & named[frame]) | ((stack >= 0) & named[stack])
        return self._users.most_frequent(np.flatnonzero(inside))

    @cached_property
    def _users(self) -> CallSites:
        """The same, of the user's frames alone."""
        return CallSites(self.trace, self.slices, lambda name: not is_library(name))

    def library_frame(self, row: int) -> str | None:
        """The innermost frame of a model library around a slice, as "transformers/.../modeling.py:97"."""
        frame = int(self._nearest_library[row]) if row >= 0 and len(self.trace.python) else -1
        site = parse_frame(self.trace.names[int(self.slices.name[frame])]) if frame >= 0 else None
        return f"{site.file}:{site.line}" if site is not None else None

    @cached_property
    def _nearest_library(self) -> I4:
        python = self.slices.kind == PYTHON
        named = np.zeros(len(self.trace.names) + 1, bool)
        used = distinct_values(self.slices.name[python])
        named[[code for code in used if is_model_library(self.trace.names[code])]] = True
        return self.slices.nearest(python & named[self.slices.name])

    def _direct(self, rows: npt.NDArray[np.integer]) -> I4:
        if not len(self.slices) or not self.recorded:
            return np.full(len(rows), -1, np.int32)
        safe = np.maximum(rows, 0)
        site = self._in_frames(rows, np.where(rows >= 0, self._nearest_frame[safe], -1))
        stacked = np.where((site < 0) & (rows >= 0), self._nearest_stack[safe], -1)
        return np.where(stacked >= 0, self._site_of_stack[np.maximum(stacked, 0)], site)

    def _in_frames(self, rows: npt.NDArray[np.integer], frame: npt.NDArray[np.integer]) -> I4:
        """Sites of slices in the user frames around them; -1 if there is none."""
        site = np.where(frame >= 0, self._site_of_name[self.slices.name[np.maximum(frame, 0)]], -1)
        inside = np.flatnonzero((frame >= 0) & (frame != rows))
        first, last = self._lines(rows[inside], frame[inside])
        return self._at_lines(site, inside[first > 0], first[first > 0], last[first > 0])

    def _at_lines(self, site: I4, rows: npt.NDArray[np.integer], first: I4, last: I4) -> I4:
        """`site` with some rows moved to other lines of the same function."""
        out = site.astype(np.int32)
        place, group = group_rows(out[rows], first, last)
        moved = []
        for index, low, high in zip(*(c[place].tolist() for c in (out[rows], first, last)), strict=True):
            function = self.sites[index]
            moved.append(self.add(Location(function.file, low, function.function, high if high > low else None)))
        out[rows] = np.array(moved, np.int32)[group]
        return out

    def _lines(self, rows: npt.NDArray[np.integer], frames: npt.NDArray[np.integer]) -> tuple[I4, I4]:
        """First and last possible line of each row, in the closest user frame around it; 0: unknown.

        It is the line of the frame's call that contains the row; otherwise the row is between two of the frame's calls.
        """
        caller, call_line = self._calls
        holder = self._nearest_call[rows]
        held = (holder >= 0) & (caller[np.maximum(holder, 0)] == frames)
        exact = np.where(held, call_line[np.maximum(holder, 0)], 0)
        first, last = self._calls_around(rows, frames)
        between = ~held & (first > 0) & (last >= first)  # otherwise a loop started over between the two calls
        return np.where(between, first, exact), np.where(between, last, exact)

    def _calls_around(self, rows: npt.NDArray[np.integer], frames: npt.NDArray[np.integer]) -> tuple[I4, I4]:
        """Lines of the last call that each frame makes before a slice, and of the first one from there on; 0: none."""
        caller, call_line = self._calls
        calls, key = self._calls_by_caller
        if not len(calls):
            return np.zeros(len(rows), np.int32), np.zeros(len(rows), np.int32)
        after = np.searchsorted(key, frames.astype(np.int64) * len(self.slices) + rows)

        def line_of(place: npt.NDArray[np.integer]) -> I4:
            known = (place >= 0) & (place < len(calls))
            call = calls[np.where(known, place, 0)]
            return np.where(known & (caller[call] == frames), call_line[call], 0)

        return line_of(after - 1), line_of(after)

    @cached_property
    def _calls(self) -> tuple[I4, I4]:
        """For every slice that is a call by user code, the calling frame's slice and its line; -1 for other slices."""
        slices = self.slices
        line = np.full(len(slices), -1, np.int32)
        python = slices.kind == PYTHON
        line[python] = self.trace.python.call_line[slices.row[python]]
        named = np.array([not name.startswith("<built-in") for name in self.trace.names] or [False])
        frame = slices.nearest(python & named[slices.name])
        caller = np.where((line >= 0) & (slices.parent >= 0), frame[np.maximum(slices.parent, 0)], -1)
        return np.where((caller >= 0) & self.code_frames[np.maximum(caller, 0)], caller, -1).astype(np.int32), line

    @cached_property
    def _calls_by_caller(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
        """The calls by user code, sorted by caller and then by time, and the sort key."""
        caller, _ = self._calls
        calls = np.flatnonzero(caller >= 0)
        calls = calls[np.argsort(caller[calls], kind="stable")]
        return calls, caller[calls].astype(np.int64) * len(self.slices) + calls

    @cached_property
    def _nearest_call(self) -> I4:
        return self.slices.nearest(self._calls[0] >= 0)

    def _stack_site(self, text: str) -> int:
        frames = str(msgspec.json.decode(text)).split(";")
        return next((self.add(parse_frame(f.strip())) for f in frames if self.wanted(f.strip())), -1)

    def times_in_a_call(self, rows: npt.NDArray[np.integer]) -> float:
        """How often the forward operators of backward slices run in one call of the function around them, on average; 0
        if none is known. What each layer calls once is no loop.
        """
        calls = self.slices.ancestor(self.forward_of(rows), self.code_frames)
        calls = calls[calls >= 0]
        return len(calls) / max(1, len(distinct_values(calls)))

    def forward_of(self, rows: npt.NDArray[np.integer]) -> I4:
        """The slice of the forward operator for slices of backward work; -1: none. Shape (len(rows),)."""
        forward = self._forward_by_sequence_of(rows)
        return np.where(forward >= 0, forward, self._flow_source_of(rows)).astype(np.int32)

    def _forward_by_sequence_of(self, rows: npt.NDArray[np.integer]) -> I4:
        """The forward operator's slice for slices inside a backward operator; -1: none."""
        if not self.recorded or not len(self._creators):
            return np.full(len(rows), -1, np.int32)
        backward, slices = self._nearest_backward[rows], self.slices
        row = np.where(backward >= 0, slices.row[backward], 0)
        found = np.where(backward >= 0, self._creators[row], -1)
        return np.where(found >= 0, slices.of(OP, len(self._creators))[found], -1).astype(np.int32)

    def _flow_source_of(self, rows: npt.NDArray[np.integer]) -> I4:
        """Where a forward-to-backward arrow into a slice around each row starts; -1: none."""
        source = self._flow_source
        if not len(source):
            return np.full(len(rows), -1, np.int32)
        target = self.slices.nearest(source >= 0)[rows]
        return np.where(target >= 0, source[np.maximum(target, 0)], -1).astype(np.int32)

    @cached_property
    def _flow_source(self) -> I4:
        """For every slice, the slice in which an arrow into it starts; -1: none. Empty without arrows."""
        flows, slices = self.trace.flows, self.slices
        if not len(flows) or not self.recorded:
            return np.empty(0, np.int32)
        ends = slices.at_threads(flows.thread, flows.time)
        out = np.full(len(slices), -1, np.int32)
        starts = dict(zip(flows.id[flows.finish == 0].tolist(), ends[flows.finish == 0].tolist(), strict=True))
        for flow, end in zip(flows.id[flows.finish == 1].tolist(), ends[flows.finish == 1].tolist(), strict=True):
            if end >= 0:
                out[end] = starts.get(flow, -1)  # one arrow per autograd node
        return out

    @cached_property
    def _creators(self) -> I8:
        """The forward operator that created the node of each operator; -1: none. Shape (len(trace.ops),)."""
        ops = self.trace.ops
        return ops.creators(np.flatnonzero((ops.sequence >= 0) & (ops.forward_thread <= 0)))

    @cached_property
    def _nearest_backward(self) -> I4:
        return self.slices.nearest(self._backward)

    @cached_property
    def _backward(self) -> npt.NDArray[np.bool_]:
        """Slices of backward operators, which autograd marks with a forward thread."""
        ops = self.trace.ops
        op = self.slices.kind == OP
        out = np.zeros(len(self.slices), bool)
        rows = self.slices.row[op]
        out[op] = (ops.sequence[rows] >= 0) & (ops.forward_thread[rows] > 0)
        return out
