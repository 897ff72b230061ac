"""One pass over the rows of a graph: when everything happens, or only how long the steps take."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.replay.graph import HOST, Graph, Rows
from traceopt.analyzer.replay.queues import EARLY
from traceopt.analyzer.tables.schema import I8


class StepTimes(Struct, frozen=True):
    """Times at the step borders in ns, shape (steps + 1,)."""

    host: I8  # how far the host was
    device: I8  # when the work issued so far will have ended

    @property
    def complete(self) -> I8:
        """When the host was done with a step and the device with everything issued until then."""
        return np.maximum(self.host, self.device)

    @property
    def per_step_ns(self) -> I8:
        """Duration of each step. Shape (steps,)."""
        return np.diff(self.complete)


class Timing(StepTimes, frozen=True):
    """The same times for every row, shape (rows,), except `free`."""

    free: I8  # of each stream: when it was done with everything from before the first step
    end: I8  # when its work ended, or the host was done with it
    clock: I8  # how far the host was when it had issued the row, or waited in it


Meeting = tuple[int, int, int]  # round, number of the shared collective, arrival time of this rank in ns
Pass = Generator[Meeting, int, Timing]


def step_times(graph: Graph, rows: Rows, rounds: int = 1) -> StepTimes:
    """Replays `rows` (the graph's, changed or not) from the state at the start of the window. In further rounds the
    steps repeat from the state at the end of the previous round. The last round counts.
    """
    timing = _timing(*condensed(graph, rows), rounds)
    return StepTimes(timing.host, timing.device)


def retime(graph: Graph, rows: Rows, rounds: int = 1) -> Timing:
    """Like `step_times`, but returns the times of every row."""
    return _expanded(graph, rows, _timing(*condensed(graph, rows), rounds))


def _timing(graph: Graph, rows: Rows, rounds: int) -> Timing:
    try:
        next(one_pass(graph, rows, rounds))
    except StopIteration as end:
        timing: Timing = end.value
        return timing
    raise AssertionError("a rank that is replayed alone has no shared collectives")


def condensed(graph: Graph, rows: Rows) -> tuple[Graph, Rows]:
    """The same steps with one row per run.

    A run ends at the latest of these times: its stream is free, plus all its work; the row awaited by its first row
    ends, plus all its work; each launch, plus the work from there on. One row with zero duration expresses this.
    """
    runs = graph.runs(rows)
    first, last = runs.first, runs.last
    issued, done = np.cumsum(rows.host), np.cumsum(rows.lead + rows.duration)
    after = rows.latency + rows.duration  # when the row's work ends, after everything before the run
    after += issued
    after -= done
    left = rows.duration[first] + done[last] - done[first]  # at least, from the start of the first row
    awaits = rows.awaits[first]
    fewer = Rows(
        host=np.diff(issued[last], prepend=0),
        stream=rows.stream[first],
        latency=np.maximum.reduceat(after, first) + (done - issued)[last],
        lead=rows.lead[first] + left,
        duration=np.zeros(len(first), np.int64),
        awaits=np.where(awaits >= 0, runs.of(awaits), -1),
        wake=rows.wake[first] + left,
    )
    return replace(graph, rows=fewer, host_start=graph.host_start[first], borders=runs.of(graph.borders)), fewer


def _expanded(graph: Graph, rows: Rows, timing: Timing) -> Timing:
    """The timing of all rows, from the timing of their runs."""
    runs, fixed = graph.runs(rows), graph.fixed
    issued = np.cumsum(rows.host)
    clock = issued + np.repeat(timing.clock - issued[runs.last], runs.size)
    start = clock + rows.latency  # if its stream does not delay it
    waiting = np.flatnonzero(rows.awaits >= 0)
    ready = timing.end[runs.of(rows.awaits[waiting])] + rows.wake[waiting]
    start[waiting] = np.maximum(start[waiting], ready)
    end = clock.copy()
    end[:fixed] = graph.measured_end[:fixed]
    for stream, free in enumerate(timing.free.tolist()):
        mine = fixed + np.flatnonzero(rows.stream[fixed:] == stream)
        duration = rows.duration[mine]
        done = np.cumsum(rows.lead[mine] + duration)
        # When the stream was free, not counting its own work.
        since = np.maximum.accumulate(start[mine] + duration - done)
        end[mine] = np.maximum(since, free) + done
    return Timing(timing.host, timing.device, timing.free, end, clock)


def one_pass(graph: Graph, rows: Rows, rounds: int = 1) -> Pass:
    """Like `retime`, for work that may be shared with other ranks: a duration of ~m means that the row takes part in
    shared collective m. The pass yields there with the time at which the row can start, and is resumed with the time at
    which it ends.

    Loops over plain lists, because each row depends on earlier ones; about 0.3 us per row.
    """
    first = graph.fixed
    columns = (rows.host, rows.stream, rows.latency, rows.lead, rows.duration, rows.awaits, rows.wake)
    fixed_end: list[int] = graph.measured_end[:first].tolist()
    free = [EARLY] * (int(rows.stream.max()) + 1)
    for queue, time in zip(rows.stream[:first].tolist(), fixed_end, strict=True):
        free[queue] = max(free[queue], time)
    now = int(graph.host_start[graph.borders[0]])
    for turn in range(rounds):
        end, began, at_first = fixed_end.copy(), now, free.copy()
        at_border, at_device = [], []
        begin = first
        for border in (graph.borders + 1).tolist():
            step = (column[begin:border].tolist() for column in columns)
            for host, queue, latency, lead, length, awaited, wake in zip(*step, strict=True):
                now += host
                if queue == HOST:
                    if awaited >= 0 and (ready := end[awaited] + wake) > now:
                        now = ready
                    end.append(now)
                else:
                    start = now + latency
                    if (ready := free[queue] + lead) > start:
                        start = ready
                    if awaited >= 0 and (ready := end[awaited] + wake) > start:
                        start = ready
                    done = start + length if length >= 0 else (yield turn, ~length, start)
                    free[queue] = done
                    end.append(done)
            begin = border
            at_border.append(now)
            at_device.append(max(free, default=now))
    host, device, before, ends = (np.array(times, np.int64) for times in (at_border, at_device, at_first, end))
    return Timing(host, device, before, ends, _clock(rows, ends, first, began))


def _clock(rows: Rows, end: I8, fixed: int, began: int) -> I8:
    """How far the host was after each row: since its last own row, which may have waited, it has only worked."""
    own = fixed + np.flatnonzero(rows.stream[fixed:] == HOST)
    issued = np.cumsum(rows.host)
    lost = np.append(began - issued[fixed - 1] if fixed else began, end[own] - issued[own])  # time spent waiting
    clock: I8 = issued + np.repeat(lost, np.diff(own, prepend=0, append=len(rows)))
    clock[:fixed] = began
    return clock
