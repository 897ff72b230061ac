"""Several ranks replayed together: a collective ends once the last rank has arrived and the data has moved.

Replayed alone, a rank's collectives take as long as recorded, including the wait for other ranks. Replayed together, a
change on one rank makes the others wait less, or longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.ranks.rank_summary import summarize
from traceopt.analyzer.ranks.run_facts import RunFacts
from traceopt.analyzer.replay.changes import Change, apply_all
from traceopt.analyzer.replay.graph import Rows
from traceopt.analyzer.replay.replayed import MIN_STEPS, Replayed
from traceopt.analyzer.replay.retime import Pass, Timing, one_pass
from traceopt.analyzer.tables.schema import I8


class Meetings(Struct, frozen=True):
    """The collectives that one rank shares with others; arrays have shape (len,), times in ns.

    `late` is how much later than the collective the rank's own work ended, because clocks are never exactly aligned.
    """

    row: I8  # of the rank's graph
    event: I8  # number of the collective
    late: I8


class Ranks(Struct, frozen=True, dict=True):
    """Traces of several ranks of one run. `run` compares them, in the same order."""

    facts: Sequence[Facts]

    @cached_property
    def run(self) -> RunFacts:
        return RunFacts([summarize(facts) for facts in self.facts])

    @cached_property
    def clock_ns(self) -> list[int]:
        """What to add to each rank's times to put them on one clock."""
        offsets = self.run.clock_offset
        starts = [facts.trace.meta.start_ns or 0 for facts in self.facts]
        return [
            start - int(offset) if offset == offset else start for start, offset in zip(starts, offsets, strict=True)
        ]

    @cached_property
    def _met(self) -> tuple[list[Meetings], I8]:
        """The shared collectives of each rank, and how long each took after the last rank arrived, shape (events,)."""
        found = self.run.matched
        keep = found.symmetric.copy()
        row, start, end = (np.zeros(len(found), np.int64) for _ in range(3))
        for rank, facts in enumerate(self.facts):
            mine = np.flatnonzero(found.rank == rank)
            work = self.run.ranks[rank].collectives.work[found.call[mine]]
            row[mine] = _rows_of_work(facts)[work]
            ran, clock = facts.gpu.work, self.clock_ns[rank]
            start[mine], end[mine] = ran.start[work] + clock, ran.end_of(work) + clock
        keep &= row >= 0
        event = found.event
        others = np.bincount(event[keep], minlength=found.count)
        keep &= others[event] > 1
        came = np.full(found.count, np.iinfo(np.int64).min)
        np.maximum.at(came, event[keep], start[keep])
        left = np.full(found.count, np.iinfo(np.int64).max)
        np.minimum.at(left, event[keep], end[keep])
        moving = np.where(others > 1, np.maximum(left - came, 0), 0)
        late = end - (came + moving)[event]
        met = []
        for rank in range(len(self.facts)):
            mine = keep & (found.rank == rank)
            met.append(Meetings(row[mine], event[mine], late[mine]))
        return met, moving

    @property
    def meetings(self) -> int:
        """Number of collectives that are replayed jointly on at least two ranks."""
        met, _ = self._met
        return len(np.unique(np.concatenate([one.event for one in met])))

    def replay(self, changes: Sequence[Sequence[Change]]) -> list[Replayed]:
        """Replays all ranks together, each with its own changes. A single rank is replayed alone."""
        if len(self.facts) == 1:
            return [self.facts[0].replay(changes[0])]
        rows = [apply_all(facts.replay_graph, own) for facts, own in zip(self.facts, changes, strict=True)]
        met, moving = self._met
        rounds = 1 if min(facts.recorded_steps.count for facts in self.facts) >= MIN_STEPS else 2
        kept = [
            Meetings(*(column[own.duration[one.row] > 0] for column in (one.row, one.event, one.late)))
            for one, own in zip(met, rows, strict=True)
        ]
        changed = []
        scaled = self._scaled(rows, kept, moving)
        passes = []
        for facts, own, one in zip(self.facts, rows, kept, strict=True):
            duration = own.duration.copy()
            duration[one.row] = ~one.event
            passes.append(one_pass(facts.replay_graph, replace(own, duration=duration), rounds))
        together = _JointPass(passes, kept, scaled.tolist(), self.clock_ns)
        timings = together.run()
        for own, one, took in zip(rows, kept, together.took, strict=True):
            duration = own.duration.copy()
            duration[one.row] = [took[event] for event in one.event.tolist()]
            changed.append(replace(own, duration=duration))
        graphs = [facts.replay_graph for facts in self.facts]
        return [
            Replayed(own, graph, rows, rounds, timing)
            for own, graph, rows, timing in zip(changes, graphs, changed, timings, strict=True)
        ]

    def _scaled(self, rows: Sequence[Rows], met: Sequence[Meetings], moving: I8) -> I8:
        """Duration of each collective after the changes: scaled by the smallest factor of any rank."""
        factor = np.ones(len(moving))
        for facts, own, one in zip(self.facts, rows, met, strict=True):
            before = np.maximum(facts.replay_graph.rows.duration[one.row], 1)
            np.minimum.at(factor, one.event, own.duration[one.row] / before)
        return np.rint(moving * factor).astype(np.int64)


class _JointPass(Struct, dict=True):
    """Runs the replay passes of all ranks in turn, each until it reaches a shared collective."""

    passes: Sequence[Pass]
    met: Sequence[Meetings]
    moving: list[int]  # duration of each collective, ns
    clock_ns: list[int]

    def __post_init__(self) -> None:
        self.late = [dict(zip(one.event.tolist(), one.late.tolist(), strict=True)) for one in self.met]
        self.expected = Counter(event for late in self.late for event in late)
        self.took: list[dict[int, int]] = [{} for _ in self.passes]  # per rank, by event: time waiting and moving, ns
        self.waiting: dict[tuple[int, int], dict[int, int]] = {}  # by round and event: when each rank arrived

    def run(self) -> list[Timing]:
        timings: dict[int, Timing] = {}
        ready: list[tuple[int, int | None]] = [(rank, None) for rank in range(len(self.passes))]
        while ready or self.waiting:
            # Ranks reach two groups in different orders: complete the first collective with the ranks that have
            # arrived.
            if not ready:
                ready = self._done(min(self.waiting))
            rank, end = ready.pop()
            try:
                turn, event, start = next(self.passes[rank]) if end is None else self.passes[rank].send(end)
            except StopIteration as last:
                timings[rank] = last.value
                continue
            came = self.waiting.setdefault((turn, event), {})
            came[rank] = start
            if len(came) == self.expected[event]:
                ready += self._done((turn, event))
        return [timings[rank] for rank in range(len(self.passes))]

    def _done(self, meeting: tuple[int, int]) -> list[tuple[int, int | None]]:
        """The ranks of a collective, each with the time at which its work ends, on its own clock."""
        came, event = self.waiting.pop(meeting), meeting[1]
        done = max(start + self.clock_ns[rank] for rank, start in came.items()) + self.moving[event]
        out: list[tuple[int, int | None]] = []
        for rank, start in came.items():
            end = max(done - self.clock_ns[rank] + self.late[rank][event], start)
            self.took[rank][event] = end - start
            out.append((rank, end))
        return out


def _rows_of_work(facts: Facts) -> I8:
    """The graph row of each row of device work, -1 if a replay does not move it, with a final -1."""
    graph = facts.replay_graph
    out = np.full(len(facts.gpu.work) + 1, -1)
    rows = np.flatnonzero(graph.work >= 0)
    rows = rows[rows >= graph.fixed]
    out[graph.work[rows]] = rows
    return out
