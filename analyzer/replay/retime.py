"""One pass over the rows of a graph: when everything happens."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from traceopt.analyzer.replay.graph import HOST, Graph, Rows
from traceopt.analyzer.replay.queues import EARLY
from traceopt.analyzer.tables import I8


@dataclass(frozen=True, slots=True)
class Timing:
    """Times in ns. `end` and `clock` have shape (rows,), the others (steps + 1,): at the borders of the steps."""

    end: I8  # of each row: when its work ended; when the host was done with it
    clock: I8  # how far the host was when it had issued each row, or waited in it
    host: I8  # how far the host was
    device: I8  # when the work issued so far will have ended

    @property
    def complete(self) -> I8:
        """When the host was done with a step and the device with what was issued until then."""
        return np.maximum(self.host, self.device)


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


def one_pass(graph: Graph, rows: Rows, rounds: int = 1) -> Pass:
    """The same, where work may have to meet other ranks: a duration of ~m means that the row takes part in meeting m.
    The pass halts there with the time at which the row can start, and goes on with the time at which it ends.

    A loop over rows with plain lists, because each row depends on earlier ones; about 0.3 us a row.
    """
    first = graph.fixed
    columns = (rows.host, rows.stream, rows.latency, rows.lead, rows.duration, rows.awaits, rows.wake)
    host, stream, latency, lead, duration, awaits, wake = (column[first:].tolist() for column in columns)
    fixed_end: list[int] = graph.measured_end[:first].tolist()
    free = [EARLY] * (int(rows.stream.max()) + 1)
    for queue, time in zip(rows.stream[:first].tolist(), fixed_end, strict=True):
        free[queue] = max(free[queue], time)
    now = int(graph.host_start[graph.borders[0]])
    for turn in range(rounds):
        end, clock = fixed_end.copy(), [now] * first
        at_border, at_device = [], []
        begin = 0
        for border in (graph.borders - first + 1).tolist():
            for row in range(begin, border):
                now += host[row]
                awaited, queue = awaits[row], stream[row]
                if queue == HOST:
                    if awaited >= 0 and (ready := end[awaited] + wake[row]) > now:
                        now = ready
                    end.append(now)
                else:
                    start = now + latency[row]
                    if (ready := free[queue] + lead[row]) > start:
                        start = ready
                    if awaited >= 0 and (ready := end[awaited] + wake[row]) > start:
                        start = ready
                    length = duration[row]
                    done = start + length if length >= 0 else (yield turn, ~length, start)
                    free[queue] = done
                    end.append(done)
                clock.append(now)
            begin = border
            at_border.append(now)
            at_device.append(max(free, default=now))
    return Timing(*(np.array(times, np.int64) for times in (end, clock, at_border, at_device)))
