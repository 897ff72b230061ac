"""One pass over the rows of a graph: when everything happens, or only how long the steps take."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.replay.graph import HOST, Graph, Rows
from traceopt.analyzer.replay.queues import EARLY
from traceopt.analyzer.tables import I8


class Pace(Struct, frozen=True):
    """Times in ns at the borders of the steps, shape (steps + 1,)."""

    host: I8  # how far the host was
    device: I8  # when the work issued so far will have ended

    @property
    def complete(self) -> I8:
        """When the host was done with a step and the device with what was issued until then."""
        return np.maximum(self.host, self.device)


class Timing(Pace, frozen=True):
    """Of each row as well; shape (rows,)."""

    end: I8  # when its work ended; when the host was done with it
    clock: I8  # how far the host was when it had issued the row, or waited in it


Meeting = tuple[int, int, int]  # the round, the number of the meeting, and when this rank comes to it, ns
Pass = Generator[Meeting, int, Timing]


def retime(graph: Graph, rows: Rows, rounds: int = 1) -> Timing:
    """Replays `rows`, those of the graph or changed ones, from the state in which the window began; in further rounds
    the steps come over again, from the state that the round before left behind. The last round counts.
    """
    try:
        next(one_pass(graph, rows, rounds))
    except StopIteration as end:
        timing: Timing = end.value
        return timing
    raise AssertionError("one rank alone has no meetings")


def pace(graph: Graph, rows: Rows, rounds: int = 1) -> Pace:
    """As `retime`, only for the borders of the steps, which takes a fraction of the time."""
    timing = retime(*condensed(graph, rows), rounds)
    return Pace(timing.host, timing.device)


def condensed(graph: Graph, rows: Rows) -> tuple[Graph, Rows]:
    """The same steps with one row for each run of work: rows of one stream of which only the first may wait for
    another stream, and only the last is awaited.

    A run ends when the last of these has come: its stream is free, then all its work; what its first row awaits, then
    all its work; any of its launches, then the work from there on. That is what a row is, with no duration.
    """
    awaited = np.zeros(len(rows), bool)
    awaited[rows.awaits[rows.awaits >= 0]] = True
    goes_on = (rows.stream[1:] == rows.stream[:-1]) & (rows.stream[1:] != HOST) & (rows.awaits[1:] < 0) & ~awaited[:-1]
    goes_on[: graph.fixed] = False
    first = np.flatnonzero(np.append(True, ~goes_on))
    last = np.append(first[1:], len(rows)) - 1
    run = np.cumsum(np.append(True, ~goes_on)) - 1

    issued, done = np.cumsum(rows.host), np.cumsum(rows.lead + rows.duration)
    left = rows.duration + done[last][run] - done  # from the start of each row to the end of its run, at least
    early = issued[last][run] - issued  # how much earlier than the last of its run each row was issued
    fewer = Rows(
        host=np.add.reduceat(rows.host, first),
        stream=rows.stream[first],
        latency=np.maximum.reduceat(rows.latency + left - early, first),
        lead=rows.lead[first] + left[first],
        duration=np.zeros(len(first), np.int64),
        awaits=np.where(rows.awaits[first] >= 0, run[rows.awaits[first]], -1),
        wake=rows.wake[first] + left[first],
    )
    return replace(graph, rows=fewer, host_start=graph.host_start[first], borders=run[graph.borders]), fewer


def one_pass(graph: Graph, rows: Rows, rounds: int = 1) -> Pass:
    """The same, where work may have to meet other ranks: a duration of ~m means that the row takes part in meeting m.
    The pass halts there with the time at which the row can start, and goes on with the time at which it ends.

    A loop over rows with plain lists, because each row depends on earlier ones; about 0.3 us a row.
    """
    first = graph.fixed
    columns = (rows.host, rows.stream, rows.latency, rows.lead, rows.duration, rows.awaits, rows.wake)
    fixed_end: list[int] = graph.measured_end[:first].tolist()
    free = [EARLY] * (int(rows.stream.max()) + 1)
    for queue, time in zip(rows.stream[:first].tolist(), fixed_end, strict=True):
        free[queue] = max(free[queue], time)
    now = int(graph.host_start[graph.borders[0]])
    for turn in range(rounds):
        end, clock = fixed_end.copy(), [now] * first
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
                clock.append(now)
            begin = border
            at_border.append(now)
            at_device.append(max(free, default=now))
    return Timing(*(np.array(times, np.int64) for times in (at_border, at_device, end, clock)))
