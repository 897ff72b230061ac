"""Comparison of ranks: matching collectives, clock offsets between ranks, who is late and why."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.arrays.columns import Columns
from traceopt.analyzer.arrays.percentiles import median, medians_of_others
from traceopt.analyzer.ranks.missing_ranks import missing_ranks
from traceopt.analyzer.ranks.rank_summary import RankSummary
from traceopt.analyzer.ranks.run_experts import RunExperts, find_run_experts
from traceopt.analyzer.ranks.run_history import RunHistory, find_run_history
from traceopt.analyzer.ranks.run_phases import RunPhase, find_run_phases
from traceopt.analyzer.ranks.run_pipelines import RunPipeline, find_run_pipelines
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.table import CAUSE_OF_KEY, COMPUTE

F8 = npt.NDArray[np.float64]

# Kinds that no rank can leave before all ranks have entered, so they end at the same moment on every rank.
SYMMETRIC = frozenset(("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier", "collective"))
EXPLAINS = 0.3  # of a wait: a part on which the late ranks spend as much more is what makes them late
MIN_COMMON = 3  # collectives that two ranks must share to align their clocks
SAME_WORK = 0.01  # of the blocks: ranks that differ by less do the same work


class Matched(Columns, frozen=True):
    """Collectives seen on at least two ranks. Arrays have shape (len,), with one row per collective and rank.

    `event` numbers the collectives in order; `rank` is an index into RunFacts.ranks, `step` into RunFacts.step_names.
    """

    event: I8
    rank: I8
    step: I8
    start: F8  # ns, on the clock of the first rank
    end: F8
    exposed: I8
    symmetric: npt.NDArray[np.bool_]
    group: I8  # number of the process group
    call: I8  # index into the rank's collectives

    @property
    def count(self) -> int:
        return int(self.event.max()) + 1 if len(self.event) else 0


class Straggler(Struct, frozen=True):
    """The rank that others wait for most, or several that come late together, as the ranks of one node. `parts` is what
    they spend more time on than the others, ns per step, most first.
    """

    ranks: list[int]  # indices into RunFacts.ranks
    wait_ns: float  # that the others would save in the median step if these came no later than the last of them
    share: float  # of all time spent waiting for late ranks
    parts: list[tuple[Cause, float]]
    recording_ns: float  # of the wait: what the profiler costs the late ranks

    @property
    def own_wait_ns(self) -> float:
        """The wait without that for the profiler, at least 0."""
        return max(0.0, self.wait_ns - self.recording_ns)

    @property
    def cause(self) -> Cause | None:
        """What makes them late, if it explains much of the wait."""
        return next((cause for cause, more_ns in self.parts[:1] if more_ns >= EXPLAINS * self.wait_ns), None)


class GroupWait(Struct, frozen=True):
    """How long a rank waits in the collectives of a process group for the last rank, in the median step."""

    wait_ns: float
    latest_rank: int | None  # for whom it waits longest; None: it does not wait


class Arrivals(Struct, frozen=True):
    """Who comes late to the collectives that show it; arrays have shape (collectives,), times in ns.

    The late ranks come after the largest gap between two starts; they are at most half of the ranks.
    """

    event: I8
    step: I8
    wait: F8  # from the last rank before that gap to the last rank
    late: I8  # number of the set of late ranks
    sets: list[I8]  # the sets: indices into RunFacts.ranks


class RunFacts(Struct, frozen=True, dict=True):
    """Facts of all ranks together, from their summaries. Times in ns."""

    ranks: list[RankSummary]

    @cached_property
    def without_engines(self) -> RunFacts:
        """The processes whose ranks are one series: without the inference engines beside a training."""
        kept = [rank for rank in self.ranks if rank.engine is None]
        return self if len(kept) == len(self.ranks) else RunFacts(kept)

    @property
    def incomparable(self) -> str | None:
        """Why these traces cannot be compared as ranks of one run; None if they can."""
        if len(self.ranks) < 2:
            return "Only one rank was given; give the folder with the traces of all ranks."
        numbers = [rank.rank for rank in self.ranks]
        if None in numbers:
            return "A trace does not say which rank it is from."
        if len(set(numbers)) < len(numbers):
            return "Two traces are from the same rank."
        if any(rank.sampled for rank in self.ranks):
            return "A trace holds only a sample of the events; record whole traces."
        return None

    @property
    def step_ns(self) -> float:
        """Median over ranks of their typical steps."""
        return median([rank.step_ns for rank in self.ranks])

    @property
    def has_step_marks(self) -> bool:
        """Whether every rank's trace marks its steps."""
        return all(rank.has_step_marks for rank in self.ranks)

    @cached_property
    def step_names(self) -> list[str]:
        """Names of the steps that every rank recorded, in order."""
        common = set.intersection(*(set(rank.step_names) for rank in self.ranks)) if self.ranks else set()
        return [name for name in self.ranks[0].step_names if name in common] if self.ranks else []

    @cached_property
    def _common(self) -> list[I8]:
        """For each rank, the indices of its steps that are common to all. Shape (steps,)."""
        at = [{name: row for row, name in enumerate(rank.step_names)} for rank in self.ranks]
        return [np.array([rows[name] for name in self.step_names], np.int64) for rows in at]

    @cached_property
    def _raw(self) -> Matched:
        """Matched collectives on each rank's own clock, counted from the first collective of any rank."""
        calls = [rank.collectives for rank in self.ranks]
        rank = np.repeat(np.arange(len(calls)), [len(of_rank) for of_rank in calls])
        step = _joined([self._place_of_steps(index)[of_rank.step] for index, of_rank in enumerate(calls)])

        def column(name: str) -> I8:  # concatenated on demand: a thousand ranks have millions of rows
            return _joined([getattr(of_rank, name) for of_rank in calls])

        label, symmetric, group = self._labels()
        number = column("number")
        event = _ids(label, number) if (number >= 0).all() else _ids(label, step, column("place"))
        rows = np.flatnonzero(step >= 0)
        times_seen = np.bincount(event[rows])
        rows = rows[times_seen[event[rows]] > 1]
        rows = rows[np.lexsort((rank[rows], event[rows]))]
        origin = min((int(of_rank.start.min()) for of_rank in calls if len(of_rank)), default=0)
        return Matched(
            event=_ids(event[rows]),
            rank=rank[rows],
            step=step[rows],
            start=(column("start")[rows] - origin).astype(np.float64),
            end=(column("end")[rows] - origin).astype(np.float64),
            exposed=column("exposed")[rows],
            symmetric=symmetric[label[rows]],
            group=group[label[rows]],
            call=_joined([np.arange(len(of_rank)) for of_rank in calls])[rows],
        )

    def _labels(self) -> tuple[I8, npt.NDArray[np.bool_], I8]:
        """The label of each collective of all ranks, and for each label whether its kind is symmetric and the number of
        its process group.
        """
        codes: dict[str, int] = {}
        found = []
        for rank in self.ranks:
            calls = rank.collectives
            of_rank = np.array([codes.setdefault(text, len(codes)) for text in calls.labels], np.int64)
            found.append(of_rank[calls.label])
        groups: dict[str, int] = {}
        numbers = [groups.setdefault(text.rpartition("|")[0], len(groups)) for text in codes]
        symmetric = np.array([text.rpartition("|")[2] in SYMMETRIC for text in codes], np.bool_)
        return _joined(found), symmetric, np.array(numbers, np.int64)

    def _place_of_steps(self, rank: int) -> I8:
        """For each step of a rank, its index among the common steps; -1 for others."""
        place = np.full(len(self.ranks[rank].step_names), -1, np.int64)
        place[self._common[rank]] = np.arange(len(self.step_names))
        return place

    @cached_property
    def clock_offset(self) -> F8:
        """How far each rank's clock is ahead of the first rank's; NaN if they share too few collectives.

        Based on symmetric collectives, which end on all ranks at the same moment.
        """
        raw, count = self._raw, len(self.ranks)
        rows = np.flatnonzero(raw.symmetric)
        event, rank, end = raw.event[rows], raw.rank[rows], raw.end[rows]
        offset = np.full(count, np.nan)
        offset[:1] = 0.0
        while True:  # spreads from rank to rank through shared process groups
            known = ~np.isnan(offset)[rank]
            reference = _medians(event[known], end[known] - offset[rank[known]], raw.count)
            apart = np.flatnonzero(~known & ~np.isnan(reference[event]))
            found = _medians(rank[apart], end[apart] - reference[event[apart]], count)
            found[np.bincount(rank[apart], minlength=count) < MIN_COMMON] = np.nan
            if np.isnan(found).all():
                return offset
            offset = np.where(np.isnan(offset), found, offset)

    @cached_property
    def matched(self) -> Matched:
        """Collectives of ranks with aligned clocks, on the clock of the first rank."""
        raw = self._raw
        shift = self.clock_offset[raw.rank]
        return replace(raw, start=raw.start - shift, end=raw.end - shift).take(~np.isnan(shift))

    @cached_property
    def _in_step(self) -> I8:
        """Rows of `matched` whose collectives show who is late, by collective, in order of start.

        The first symmetric collective of a process group and those before it do not: ranks enter them at different
        times because their recordings start at different times.
        """
        found = self.matched
        last = np.full(found.count, -np.inf)
        np.maximum.at(last, found.event, found.start)
        first = np.full(int(found.group.max(initial=0)) + 1, np.inf)
        np.minimum.at(first, found.group[found.symmetric], last[found.event[found.symmetric]])
        rows = np.flatnonzero(last[found.event] > first[found.group])
        return rows[np.lexsort((found.start[rows], found.event[rows]))]

    @cached_property
    def compared_steps(self) -> I8:
        """Indices of the common steps with a collective that shows who is late."""
        return np.flatnonzero(np.bincount(self.matched.step[self._in_step], minlength=len(self.step_names)))

    @cached_property
    def waits(self) -> F8:
        """Time that the other ranks would save in each step if a rank were no later than the next to last one. Shape
        (steps, ranks), ns.

        For each collective this is the time between the last two starts. It is limited to the exposed time of the
        others' collectives in that step, because a late collective also delays the ones behind it.
        """
        found, shape = self.matched, (len(self.step_names), len(self.ranks))
        rows = self._in_step
        event = found.event[rows]
        last = np.flatnonzero(np.append(event[1:] != event[:-1], True)) if len(event) else np.empty(0, np.int64)
        last = last[np.append(False, event[1:] == event[:-1])[last]] if len(last) else last  # at least two ranks
        latest, before = rows[last], rows[last - 1]
        gaps = _sums(found.step[latest], found.rank[latest], found.start[latest] - found.start[before], shape)
        return np.minimum(gaps, medians_of_others(self._exposed))

    @property
    def waits_in_median_step(self) -> F8:
        """The same in the median step; of ranks that come late together, for all of them. Shape (ranks,), ns."""
        waits = self.waits[self.compared_steps]
        of_each = np.asarray(np.median(waits, axis=0)) if len(waits) else np.zeros(len(self.ranks))
        if (late := self.straggler) is not None and len(late.ranks) > 1:
            of_each[late.ranks] = late.wait_ns
        return of_each

    @cached_property
    def _exposed(self) -> F8:
        """Exposed time of the collectives. Shape (steps, ranks), ns."""
        found = self.matched
        return _sums(found.step, found.rank, found.exposed, (len(self.step_names), len(self.ranks)))

    @cached_property
    def arrivals(self) -> Arrivals:
        """Which ranks come late together to which collectives."""
        found, rows = self.matched, self._in_step
        event, start = found.event[rows], found.start[rows]
        begin, end = np.searchsorted(event, event), np.searchsorted(event, event, side="right")
        at = np.arange(len(rows))
        cut = np.flatnonzero((at > begin) & (2 * (end - at) <= end - begin))
        gap = start[cut] - start[cut - 1]
        cut = cut[np.lexsort((gap, event[cut]))]
        cut = cut[np.append(event[cut][1:] != event[cut][:-1], True)] if len(cut) else cut
        sets: dict[bytes, int] = {}
        members: list[I8] = []
        late = np.empty(len(cut), np.int64)
        for index, (first, last) in enumerate(zip(cut.tolist(), end[cut].tolist(), strict=True)):
            ranks = np.sort(found.rank[rows[first:last]])
            late[index] = number = sets.setdefault(ranks.tobytes(), len(sets))
            if number == len(members):
                members.append(ranks)
        return Arrivals(event[cut], found.step[rows[cut]], start[end[cut] - 1] - start[cut - 1], late, members)

    def _waits_for(self, ranks: I8) -> F8:
        """For each of `arrivals`, what the others would save if these ranks came no later than the last of them, ns."""
        found, rows, arrivals = self.matched, self._in_step, self.arrivals
        mine = np.isin(found.rank[rows], ranks)
        own, others = np.full(found.count, np.nan), np.full(found.count, np.nan)
        np.fmax.at(own, found.event[rows[mine]], found.start[rows[mine]])
        np.fmax.at(others, found.event[rows[~mine]], found.start[rows[~mine]])
        saved = np.nan_to_num(own - others)[arrivals.event]
        return np.asarray(np.clip(saved, 0, arrivals.wait))

    @cached_property
    def late_starts(self) -> F8:
        """Exposed time in which each rank waits in collectives until the last rank enters them. Shape (steps, ranks),
        ns.
        """
        found, shape = self.matched, (len(self.step_names), len(self.ranks))
        return _sums(found.step, found.rank, self._waits_for_last, shape)

    @cached_property
    def _last(self) -> I8:
        """For each row of `matched`, the row of the rank that enters that collective last."""
        found = self.matched
        order = np.lexsort((found.start, found.event))
        return order[np.searchsorted(found.event[order], found.event, side="right") - 1]

    @cached_property
    def _waits_for_last(self) -> F8:
        """For each row of `matched`, the exposed time until the last rank enters; 0 where no rank waits for all, ns."""
        found = self.matched
        late = found.start[self._last] - found.start
        return np.where(found.symmetric, np.minimum(late, found.exposed), 0.0)

    def late_start_ns(self, rank: int | None) -> float | None:
        """The same for one rank in the median step; None if a rank is missing or the ranks cannot be compared."""
        run = self.without_engines
        index = next((at for at, one in enumerate(run.ranks) if one.rank == rank), None)
        if run.incomparable or index is None or self.missing or not run.step_names or not run.matched.count:
            return None
        return median(run.late_starts[:, index])

    def waits_of_groups(self, rank: int | None) -> dict[str, GroupWait]:
        """The same for each process group of one rank, by its name. Empty as `late_start_ns` is None."""
        run = self.without_engines
        if run.late_start_ns(rank) is None:
            return {}
        found, index = run.matched, [one.rank for one in run.ranks].index(rank)
        rows = np.flatnonzero((found.rank == index) & found.symmetric)
        late, waits = run._last[rows], run._waits_for_last[rows]
        calls = run.ranks[index].collectives
        names = np.array([label.partition("|")[0].strip('"') for label in calls.labels])[calls.label[found.call[rows]]]
        out = {}
        for name in dict.fromkeys(names.tolist()):
            mine = names == name
            of_steps = np.bincount(found.step[rows[mine]], waits[mine], len(run.step_names))
            for_rank = np.bincount(found.rank[late[mine]], waits[mine], len(run.ranks))
            latest = run.ranks[int(for_rank.argmax())].rank if for_rank.any() else None
            out[name] = GroupWait(median(of_steps), latest)
        return out

    def late_share(self, rank: int | None) -> float | None:
        """How much of one rank's exposed communication it waits for later ranks, also where that delays the collectives
        behind; None as in `late_start_ns`.
        """
        late_ns = self.late_start_ns(rank)
        if late_ns is None:
            return None
        run = self.without_engines
        index = [one.rank for one in run.ranks].index(rank)
        exposed_ns = median(run._exposed[:, index])
        waits_ns = median(np.delete(run.waits, index, axis=1).sum(axis=1))
        return min(1.0, max(late_ns, waits_ns) / exposed_ns) if exposed_ns else 0.0

    @cached_property
    def missing(self) -> str | None:
        """ "3 of 16 ranks are missing: ..."; None if no rank is missing or the ranks are unknown."""
        return missing_ranks((rank.world_size for rank in self.ranks), (rank.rank for rank in self.ranks))

    def part(self, cause: Cause) -> F8:
        """Time of a part in the common steps. Shape (steps, ranks), ns."""
        return self._in_common_steps([rank.parts.get(cause.key) for rank in self.ranks])

    def _in_common_steps(self, by_rank: list[I8 | None]) -> F8:
        """Values of each rank in the common steps. Shape (steps, ranks)."""
        out = np.zeros((len(self.step_names), len(self.ranks)))
        for index, values in enumerate(by_rank):
            if values is not None:
                out[:, index] = values[self._common[index]]
        return out

    def longest_first(self, time_ns: F8) -> list[int]:
        """Indices of the ranks, the one with the longest time first. `time_ns` has shape (ranks,)."""
        order: list[int] = np.argsort(-time_ns).tolist()
        return order

    def recording_ns(self, rank: int) -> float:
        """Extra profiler cost per step on one rank, compared to the others: without it they would wait less."""
        cost = self._in_common_steps([one.profiler_ns for one in self.ranks])
        return max(0.0, float(np.median(cost[:, rank] - np.median(np.delete(cost, rank, axis=1), axis=1))))

    @cached_property
    def experts(self) -> RunExperts | None:
        """The experts of all ranks; None unless every rank has the same passes of layers with experts."""
        return find_run_experts([rank.experts for rank in self.ranks])

    @cached_property
    def hot_experts(self) -> RunExperts | None:
        """The experts, if the rank that gets most tokens also computes longest on them, and that explains much of the
        uneven work.
        """
        found = self.experts
        above_ns = 0.0 if found is None else found.hot_above_mean_ns
        return found if above_ns and above_ns >= EXPLAINS * median(self.imbalance_ns) else None

    @cached_property
    def pipelines(self) -> list[RunPipeline]:
        """The pipelines of the run, with the stages that are recorded."""
        return find_run_pipelines(self.ranks)

    @property
    def whole_pipelines(self) -> list[RunPipeline]:
        """Those of which all stages are recorded."""
        return [one for one in self.pipelines if one.is_whole]

    @cached_property
    def phases(self) -> list[RunPhase]:
        """Phases of reinforcement learning whose processes have different tasks; empty for other runs."""
        return find_run_phases([rank.phases for rank in self.ranks], [rank.trains for rank in self.ranks])

    @cached_property
    def straggler(self) -> Straggler | None:
        """The rank, or the ranks together, that the others wait for most; None if no rank waits."""
        arrivals, steps = self.arrivals, len(self.step_names)
        if not arrivals.wait.any():
            return None
        ranks = arrivals.sets[int(np.bincount(arrivals.late, arrivals.wait).argmax())]
        others = np.setdiff1d(np.arange(len(self.ranks)), ranks)
        saved = self._waits_for(ranks)
        exposed = np.median(self._exposed[:, others], axis=1)
        waits = np.minimum(np.bincount(arrivals.step, saved, steps), exposed)[self.compared_steps]
        if not waits.any():
            return None
        more = []
        for key in dict.fromkeys(part for summary in self.ranks for part in summary.parts):
            cause = CAUSE_OF_KEY[key]
            times = self.part(cause)
            more.append((cause, median(times[:, ranks].mean(axis=1) - np.median(times[:, others], axis=1))))
        parts = sorted((part for part in more if part[1] > 0), key=lambda part: -part[1])
        recording_ns = max(map(self.recording_ns, ranks.tolist()))
        return Straggler(ranks.tolist(), median(waits), float(saved.sum() / arrivals.wait.sum()), parts, recording_ns)

    @cached_property
    def history(self) -> RunHistory | None:
        """The ranks over the whole run; None unless all of them have a step ledger."""
        run = self.without_engines
        if run.incomparable is not None:
            return None
        return find_run_history([rank.history for rank in run.ranks], [rank.rank for rank in run.ranks])

    @property
    def computes_the_same(self) -> bool:
        """Whether all GPUs run kernels of as many blocks in the median step."""
        if any(rank.blocks is None for rank in self.ranks):
            return False
        blocks = np.median(self._in_common_steps([rank.blocks for rank in self.ranks]), axis=0)
        return bool(blocks.min() > 0 and np.ptp(blocks) <= SAME_WORK * blocks.max())

    @cached_property
    def imbalance_ns(self) -> F8:
        """Compute time of the slowest rank beyond the mean, in each step."""
        compute = self.part(COMPUTE)
        return np.asarray(compute.max(axis=1) - compute.mean(axis=1)) if compute.size else np.zeros(0)


def _joined(arrays: list[I8]) -> I8:
    return np.concatenate([np.empty(0, np.int64), *arrays])


def _ids(*columns: I8) -> I8:
    """A number for each row, the same for equal rows, numbered in order of first appearance."""
    order = np.lexsort(columns)
    new = np.zeros(len(order), np.bool_)
    for column in columns:
        new[1:] |= np.diff(column[order]) != 0
    group = np.cumsum(new)
    first = order[np.flatnonzero(np.append(True, new[1:]))] if len(order) else order  # lexsort is stable
    number = np.empty(len(first), np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    ids = np.empty(len(order), np.int64)
    ids[order] = number[group]
    return ids


def _medians(group: I8, values: F8, count: int) -> F8:
    """Median of each of `count` groups; NaN for an empty one."""
    ordered = values[np.lexsort((values, group))]
    sizes = np.bincount(group, minlength=count)
    there = np.flatnonzero(sizes)
    size = sizes[there]
    begin = (np.cumsum(sizes) - sizes)[there]
    out = np.full(count, np.nan)
    out[there] = (ordered[begin + (size - 1) // 2] + ordered[begin + size // 2]) / 2
    return out


def _sums(rows: I8, columns: I8, values: I8 | F8, shape: tuple[int, int]) -> F8:
    """Sums of values by row and column."""
    flat = np.bincount(rows * shape[1] + columns, weights=values, minlength=shape[0] * shape[1])
    return np.asarray(flat, np.float64).reshape(shape)
