"""Ranks compared: the same collective on several of them, how far their clocks are apart, who comes late and why."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.ranks import COMPUTE, RankSummary
from traceopt.analyzer.tables import I8

F8 = npt.NDArray[np.float64]

# Kinds that no rank can leave before all have entered: their ends show the same moment on every clock.
SYMMETRIC = frozenset(("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier", "collective"))
MIN_COMMON = 3  # collectives that two ranks must share to compare their clocks


@dataclass(frozen=True, slots=True)
class Matched:
    """The same collective on two ranks and more. Arrays have shape (len,): one row for each rank of each.

    `event` numbers the collectives, in order; `rank` is an index into RunFacts.ranks, `step` into RunFacts.step_names.
    """

    event: I8
    rank: I8
    step: I8
    start: F8  # ns, on the clock of the first rank
    end: F8
    exposed: I8
    symmetric: npt.NDArray[np.bool_]
    call: I8  # index into the rank's collectives

    def __len__(self) -> int:
        return len(self.event)

    @property
    def count(self) -> int:
        return int(self.event.max()) + 1 if len(self.event) else 0


@dataclass(frozen=True, slots=True)
class Late:
    """A rank that the others wait for. `parts` are what it spends more on than the others, ns a step, most first."""

    rank: int  # index into RunFacts.ranks
    share: float  # of all waiting for late ranks
    parts: list[tuple[str, float]]


@dataclass(frozen=True)
class RunFacts:
    """Facts of all ranks together, from their summaries. Times in ns."""

    ranks: list[RankSummary]

    @property
    def incomparable(self) -> str | None:
        """Why these traces are not those of several ranks of one run; None when they may be."""
        if len(self.ranks) < 2:
            return "Only one rank was given; give the folder with the traces of all ranks."
        numbers = [rank.rank for rank in self.ranks]
        if None in numbers:
            return "A trace does not say of which rank it is."
        if len(set(numbers)) < len(numbers):
            return "Two traces are of the same rank."
        if any(rank.sampled for rank in self.ranks):
            return "A trace keeps only a sample of the events; record whole traces."
        return None

    @property
    def step_ns(self) -> float:
        """The median over ranks of their median steps."""
        return float(np.median([np.median(rank.step_ns) for rank in self.ranks]))

    @cached_property
    def step_names(self) -> list[str]:
        """Steps that every rank recorded, in order."""
        common = set.intersection(*(set(rank.step_names) for rank in self.ranks)) if self.ranks else set()
        return [name for name in self.ranks[0].step_names if name in common] if self.ranks else []

    @cached_property
    def _raw(self) -> Matched:
        """Matched on each rank's own clock, which counts from the first collective of all."""
        rows: list[tuple[int, int, int, int, int, int, bool, int]] = []
        events: dict[tuple[object, ...], int] = {}
        steps = {name: index for index, name in enumerate(self.step_names)}
        calls = [rank.collectives for rank in self.ranks]
        numbered = all((of_rank.number >= 0).all() for of_rank in calls)
        origin = min((int(of_rank.start.min()) for of_rank in calls if len(of_rank)), default=0)
        for index, rank in enumerate(self.ranks):
            found = rank.collectives
            of_step = [steps.get(name, -1) for name in rank.step_names]
            columns = (found.label, found.step, found.number, found.place, found.start, found.end, found.exposed)
            calls_of_rank = enumerate(zip(*columns, strict=True))
            for call, (label, step, number, place, start, end, exposed) in calls_of_rank:  # some hundred a rank
                at = of_step[step]
                key = (label, number) if numbered else (label, at, place)
                event = events.setdefault(key, len(events))
                symmetric = label.rpartition("|")[2] in SYMMETRIC
                if at >= 0:
                    rows.append((event, index, at, start - origin, end - origin, exposed, symmetric, call))
        table = np.array(rows, np.int64).reshape(-1, 8)
        times_seen = np.bincount(table[:, 0], minlength=len(events))
        table = table[times_seen[table[:, 0]] > 1]
        table = table[np.lexsort((table[:, 1], table[:, 0]))]
        _, numbers = np.unique(table[:, 0], return_inverse=True)
        return Matched(
            event=numbers.reshape(-1),
            rank=table[:, 1],
            step=table[:, 2],
            start=table[:, 3].astype(np.float64),
            end=table[:, 4].astype(np.float64),
            exposed=table[:, 5],
            symmetric=table[:, 6].astype(bool),
            call=table[:, 7],
        )

    @cached_property
    def clock_offset(self) -> F8:
        """How far each rank's clock is ahead of the first rank's; NaN where they share too few collectives.

        A collective that needs all ranks ends on all of them at once.
        """
        raw, count = self._raw, len(self.ranks)
        rows = np.flatnonzero(raw.symmetric)
        ends = np.full((raw.count, count), np.nan)
        ends[raw.event[rows], raw.rank[rows]] = raw.end[rows]
        offset = np.full(count, np.nan)
        offset[:1] = 0.0
        while True:  # from rank to rank that share a process group
            known = ~np.isnan(offset)
            aligned = ends[:, known] - offset[known]
            has = ~np.isnan(aligned).all(axis=1)
            reference = np.full(raw.count, np.nan)
            reference[has] = np.nanmedian(aligned[has], axis=1)
            apart = ends - reference[:, None]
            enough = (~np.isnan(apart)).sum(axis=0) >= MIN_COMMON
            new = np.flatnonzero(~known & enough)
            if not len(new):
                return offset
            offset[new] = np.nanmedian(apart[:, new], axis=0)

    @cached_property
    def matched(self) -> Matched:
        """Collectives of ranks whose clocks are known, on the clock of the first rank."""
        raw = self._raw
        shift = self.clock_offset[raw.rank]
        keep = ~np.isnan(shift)
        return Matched(
            event=raw.event[keep],
            rank=raw.rank[keep],
            step=raw.step[keep],
            start=(raw.start - shift)[keep],
            end=(raw.end - shift)[keep],
            exposed=raw.exposed[keep],
            symmetric=raw.symmetric[keep],
            call=raw.call[keep],
        )

    @cached_property
    def waits(self) -> F8:
        """What the other ranks would win in each step if a rank were no later than the next to last. Shape
        (steps, ranks), ns.

        Of each collective the time between the last two to start; as far as the others' collectives in that step have
        no compute beside them, for a late one also holds up those behind it.
        """
        found = self.matched
        gaps = np.zeros((len(self.step_names), len(self.ranks)))
        exposed = np.zeros_like(gaps)
        np.add.at(exposed, (found.step, found.rank), found.exposed)
        order = np.lexsort((found.start, found.event))
        event = found.event[order]
        last = np.flatnonzero(np.append(event[1:] != event[:-1], True)) if len(event) else np.empty(0, np.int64)
        last = last[np.append(False, event[1:] == event[:-1])[last]] if len(last) else last  # two ranks at least
        latest, before = order[last], order[last - 1]
        np.add.at(gaps, (found.step[latest], found.rank[latest]), found.start[latest] - found.start[before])
        bound = np.zeros_like(gaps)
        for rank in range(len(self.ranks)):
            others = np.delete(exposed, rank, axis=1)
            bound[:, rank] = np.median(others, axis=1) if others.size else 0.0
        return np.minimum(gaps, bound)

    def part(self, name: str) -> F8:
        """Time of a part in the common steps. Shape (steps, ranks), ns."""
        return self._in_common_steps([rank.parts.get(name) for rank in self.ranks])

    def _in_common_steps(self, by_rank: list[I8 | None]) -> F8:
        """Values of each rank's own steps. Shape (steps, ranks)."""
        out = np.zeros((len(self.step_names), len(self.ranks)))
        for index, (rank, values) in enumerate(zip(self.ranks, by_rank, strict=True)):
            at = {step: row for row, step in enumerate(rank.step_names)}
            if values is not None:
                out[:, index] = [values[at[step]] for step in self.step_names]
        return out

    def recording_ns(self, rank: int) -> float:
        """What recording takes of a step of one rank more than of the others': without it they would wait less."""
        cost = self._in_common_steps([one.profiler_ns for one in self.ranks])
        return max(0.0, float(np.median(cost[:, rank] - np.median(np.delete(cost, rank, axis=1), axis=1))))

    @cached_property
    def late(self) -> Late | None:
        """The rank that is waited for most; None where nobody waits."""
        total = self.waits.sum(axis=0)
        if len(self.ranks) < 2 or not total.any():
            return None
        rank = int(total.argmax())
        others = [index for index in range(len(self.ranks)) if index != rank]
        more = []
        for name in dict.fromkeys(part for summary in self.ranks for part in summary.parts):
            times = self.part(name)
            more.append((name, float(np.median(times[:, rank] - np.median(times[:, others], axis=1)))))
        parts = sorted((part for part in more if part[1] > 0), key=lambda part: -part[1])
        return Late(rank, float(total[rank] / total.sum()), parts)

    @cached_property
    def imbalance_ns(self) -> F8:
        """By how much the rank that computes longest exceeds the mean, in each step."""
        compute = self.part(COMPUTE)
        return np.asarray(compute.max(axis=1) - compute.mean(axis=1)) if compute.size else np.zeros(0)
