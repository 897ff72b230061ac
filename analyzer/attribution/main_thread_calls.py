"""Calls of the main thread that the device waits for: one activity, such as sleeping or running other programs."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.arrays.columns import Columns
from traceopt.analyzer.arrays.intervals import Intervals
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import OP, PYTHON, RUNTIME, Slices
from traceopt.analyzer.timeline.host_activity import Host
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary.causes.cause import Cause


class MainThreadCalls(Columns, frozen=True):
    """The calls of one activity on the main thread, in order. Arrays have shape (len,)."""

    rows: I8  # of Slices
    start: I8  # ns
    cost_ns: I8  # while the device waits, in the typical steps

    def typical_ns(self, steps: Steps) -> float:
        """Their cost per step."""
        return float(self.cost_ns.sum()) / steps.count

    def count_per_step(self, steps: Steps) -> float:
        """How many of them begin in a step."""
        return float(np.count_nonzero(steps.host_step_of(self.start) >= 0)) / steps.count

    def recur(self, steps: Steps) -> bool:
        """Whether the device waits for them in three of four steps."""
        by_step = steps.per_step(steps.host_step_of(self.start), self.cost_ns)
        return bool(np.sort(by_step)[steps.count // 4] > 0)


def main_thread_calls(host: Host, thread: int, activity: Cause, waits: Intervals) -> MainThreadCalls:
    """The calls that own time of the activity; `waits`: when the device waits for it. What an earlier activity does
    inside, such as a loader that sleeps, belongs to that one.
    """
    slices, rows = host.slices, host.rows_of(activity)
    rows = rows[slices.thread[rows] == thread]
    rows = rows[host.of_thread(thread)[activity].within(slices.start[rows], slices.end[rows]) > 0]
    start, end = slices.start[rows], slices.end[rows]
    return MainThreadCalls(rows.astype(np.int64), start, waits.within(start, end))


def waits_for_others(slices: Slices, calls: I8, own_code: Mask) -> Mask:
    """Which sleeps wait for something else: those of a library (retries, polls), and those of a function that sleeps
    again with no operator between, as in `while queue.empty(): time.sleep(0.001)`. `own_code`: the slices that are
    functions of the user's or a model's code. Shape (len(calls),).
    """
    function = slices.ancestor(slices.parent[calls], slices.kind == PYTHON)
    of_library = (function >= 0) & ~own_code[function]
    work = np.append(0, np.cumsum((slices.kind == OP) | (slices.kind == RUNTIME)))[calls]
    again = np.flatnonzero((function[1:] == function[:-1]) & (work[1:] == work[:-1]))
    code = np.where(function >= 0, slices.name[function], -1)
    return np.asarray(of_library | np.isin(code, code[again]))
