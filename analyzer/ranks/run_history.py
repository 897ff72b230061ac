"""The ranks over the whole run, from their step ledgers: which of them are slow in which steps, and what it costs.

In synchronous training all ranks take as long as the slowest one, so their steps do not show which it is. With
DistributedDataParallel, the time until the backward pass does: no rank waits for another before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.percentiles import median, medians_of_others
from traceopt.analyzer.ranks.rank_history import RankHistory
from traceopt.analyzer.tables.schema import F8, I8, Mask

MIN_SLOW = 0.1  # of the others' median step: how much longer a slow rank takes at least
MIN_SPREADS = 4.0  # the same as a multiple of the spread of all ranks in all stretches
MAD_TO_SIGMA = 1.4826
FEW_STRETCHES, FEW_STEPS = 3, 10  # less is a pause, not a slow rank
MOST_BETWEEN = 2  # stretches between slow ones that are as usual
MOSTLY = 0.6  # of the stretches from the first to the last one are slow
MIN_SHARE = 0.005  # of the run
TOGETHER = 0.5  # of the stretches that any of two ranks is slow, both are
MOST_ROWS = 64
HALF = 0.5  # of what a rank takes longer: a part of it that explains as much is the cause

Cause = Literal["data", "gc", "checkpoints", "evaluation"]


class SlowRanks(Struct, frozen=True):
    """Ranks that are slow in the same steps. `ranks` are indices of ranks; `is_node`: they are all ranks of a machine.

    `late_ns` is how much longer a step takes than the others' median, `ratio` the same as a multiple of that median,
    None if the ranks wait for each other, and only the time until the backward pass shows who is late. Both are None
    for ranks that alone evaluate or save checkpoints. `share`: of the run.
    """

    ranks: list[int]
    is_node: bool
    first_step: int
    last_step: int
    late_ns: float | None
    ratio: float | None
    share: float
    cause: Cause | None


class RunHistory(Struct, frozen=True):
    """Stretches of `width` steps. `longer` is how much longer each rank takes than the others' median, as a part of it,
    shape (ranks, stretches); `step_ns` is the median of the ranks. NaN where a rank has no step without a profiler.
    `eval_share` and `save_share`: of the time of the stretch, on the rank where that is most.
    """

    width: int
    steps: int
    longer: F8
    step_ns: F8
    eval_share: F8
    save_share: F8
    slow: list[SlowRanks]

    def at_the_end(self, slow: SlowRanks) -> bool:
        return slow.last_step >= self.steps - 1


def find_run_history(histories: Sequence[RankHistory | None], numbers: Sequence[int | None]) -> RunHistory | None:
    """`numbers` are those of the ranks. None unless at least two ranks, and all of them, have a ledger."""
    ranks = [history for history in histories if history is not None]
    if len(ranks) < 2 or len(ranks) < len(histories):
        return None
    width = max(history.width for history in ranks)
    steps = min(history.steps for history in ranks)
    stretches = _Stretches(ranks, width, steps, _nodes(ranks, numbers))
    known = stretches.known
    if np.count_nonzero(known) < FEW_STRETCHES:
        return None
    slow = [*stretches.slow(), *stretches.alone("eval_ns", "evaluation"), *stretches.alone("save_ns", "checkpoints")]
    times_ns = np.maximum(
        1.0, (stretches.step_ns * stretches.usual + stretches.eval_ns + stretches.save_ns).max(axis=0)
    )
    return RunHistory(
        width=width,
        steps=steps,
        longer=np.where(known, stretches.longer, np.nan),
        step_ns=np.where(known, np.median(stretches.step_ns, axis=0), np.nan),
        eval_share=np.minimum(1.0, stretches.eval_ns.max(axis=0) / times_ns),
        save_share=np.minimum(1.0, stretches.save_ns.max(axis=0) / times_ns),
        slow=sorted(slow, key=lambda ranks: (-ranks.share, ranks.first_step, ranks.ranks))[:MOST_ROWS],
    )


class _Stretches:
    """The histories of all ranks as matrices of shape (ranks, stretches)."""

    def __init__(self, ranks: Sequence[RankHistory], width: int, steps: int, nodes: set[frozenset[int]]) -> None:
        def matrix(name: str, weighted: bool = False) -> F8:
            rows = [_wider(history, getattr(history, name), width, weighted)[: -(-steps // width)] for history in ranks]
            return np.array(rows, np.float64)

        self._width, self._steps, self._nodes = width, steps, nodes
        self._run_ns = np.array([history.run_ns for history in ranks], np.float64)
        self.usual = matrix("usual")
        self.step_ns, self.fetch_ns, self.gc_ns = (matrix(name, True) for name in ("step_ns", "fetch_ns", "gc_ns"))
        self.eval_ns, self.save_ns = matrix("eval_ns"), matrix("save_ns")
        self.known: Mask = np.all((self.usual > 0) & (self.step_ns > 0), axis=0)
        others_ns = np.maximum(1.0, _of_others(self.step_ns))
        late_ns = matrix("until_backward_ns", True)
        self._by_step, self._until_backward = self.step_ns - others_ns, late_ns - _of_others(late_ns)
        self.excess_ns = np.maximum(self._by_step, self._until_backward)
        self.longer = self.excess_ns / others_ns

    def slow(self) -> list[SlowRanks]:
        longer, columns = self.longer[:, self.known], np.flatnonzero(self.known)
        spread = MAD_TO_SIGMA * median(np.abs(longer - median(longer.ravel())).ravel())
        rank, first, last = _runs(longer > max(MIN_SLOW, MIN_SPREADS * spread))
        steps = self.usual[:, self.known]
        cost_ns = np.cumsum(np.pad(self.excess_ns[:, self.known] * steps, ((0, 0), (1, 0))), axis=1)
        share = (cost_ns[rank, last + 1] - cost_ns[rank, first]) / self._run_ns[rank]
        count = np.cumsum(np.pad(steps, ((0, 0), (1, 0))), axis=1)
        enough = (share >= MIN_SHARE) & (count[rank, last + 1] - count[rank, first] >= FEW_STEPS)
        kept = np.flatnonzero(enough)
        groups: list[list[int]] = []
        for row in kept[np.lexsort((rank[kept], -share[kept]))].tolist():
            mine = next((group for group in groups if _overlap(first, last, group[0], row) >= TOGETHER), None)
            if mine is None:
                groups.append([row])
            elif rank[row] not in rank[mine]:
                mine.append(row)
        return [self._described(group, rank, columns[first], columns[last], share) for group in groups]

    def _described(self, rows: list[int], rank: I8, first: I8, last: I8, share: F8) -> SlowRanks:
        """Ranks that are slow together, as they are in the stretches of the first one."""
        ranks, begin, end = sorted(set(rank[rows].tolist())), int(first[rows[0]]), int(last[rows[0]])
        inside = np.arange(begin, end + 1)
        inside = inside[self.known[inside]]
        cells = np.ix_(ranks, inside)
        late_ns, by_step_ns, until_ns = (
            median(values[cells].mean(axis=1)) for values in (self.excess_ns, self._by_step, self._until_backward)
        )
        ratio = 1 + median(self.longer[cells].mean(axis=1)) if by_step_ns >= HALF * until_ns else None
        parts: tuple[tuple[Cause, F8], ...] = (("data", self.fetch_ns), ("gc", self.gc_ns))
        more = {cause: median((values - _of_others(values))[cells].mean(axis=1)) for cause, values in parts}
        cause = next((cause for cause, more_ns in more.items() if more_ns >= HALF * late_ns), None)
        return self._slow_ranks(ranks, begin, end, float(share[rows].max()), cause, late_ns, ratio)

    def alone(self, name: str, cause: Cause) -> list[SlowRanks]:
        """The ranks that alone evaluate or save, if that takes much."""
        times_ns: F8 = getattr(self, name)
        total_ns = times_ns.sum(axis=1, keepdims=True)
        more_ns = (total_ns - _of_others(total_ns))[:, 0]
        share = more_ns / self._run_ns
        ranks = np.flatnonzero((share >= MIN_SHARE) & (more_ns > HALF * total_ns[:, 0]))
        if not len(ranks):
            return []
        there = np.flatnonzero(times_ns[ranks].any(axis=0))
        return [self._slow_ranks(ranks.tolist(), int(there[0]), int(there[-1]), float(share[ranks].max()), cause)]

    def _slow_ranks(
        self,
        ranks: list[int],
        first: int,
        last: int,
        share: float,
        cause: Cause | None,
        late_ns: float | None = None,
        ratio: float | None = None,
    ) -> SlowRanks:
        """`first` and `last` are stretches."""
        begin, end = first * self._width, min(self._steps, (last + 1) * self._width)
        return SlowRanks(ranks, frozenset(ranks) in self._nodes, begin, end - 1, late_ns, ratio, share, cause)


def _wider(rank: RankHistory, values: I8, width: int, weighted: bool) -> F8:
    """Values of stretches of `width` steps: sums, or means over the steps of narrower ones."""
    times = width // rank.width
    weights = rank.usual.astype(np.float64) if weighted else np.ones(len(values))
    edges = np.arange(0, len(values), times)
    sums = np.add.reduceat(values * weights, edges)
    return np.asarray(sums / np.maximum(1.0, np.add.reduceat(weights, edges)) if weighted else sums)


def _of_others(values: F8) -> F8:
    """For each rank, the median of the other ranks in each stretch."""
    return np.asarray(medians_of_others(values.T).T)


def _runs(slow: npt.NDArray[np.bool_]) -> tuple[I8, I8, I8]:
    """Rows, first and last columns of where a row is mostly true, without short ones."""
    padded = np.pad(slow, ((0, 0), (1, MOST_BETWEEN + 1)))
    length, flat = padded.shape[1], padded.ravel()
    turns = np.flatnonzero(np.diff(flat.astype(np.int8))) + 1
    begin, end = turns[::2], turns[1::2]
    apart = begin[1:] - end[:-1] > MOST_BETWEEN
    begin, end = begin[np.append(True, apart)[: len(begin)]], end[np.append(apart, True)[: len(end)]]
    before = np.append(0, np.cumsum(flat))
    count = before[end] - before[begin]
    kept = (count >= FEW_STRETCHES) & (count >= MOSTLY * (end - begin))
    begin, end = begin[kept], end[kept]
    return begin // length, begin % length - 1, (end - 1) % length - 1


def _overlap(first: I8, last: I8, one: int, other: int) -> float:
    """What two runs have in common, as a part of what they cover together."""
    both = min(last[one], last[other]) - max(first[one], first[other]) + 1
    return float(both / (max(last[one], last[other]) - min(first[one], first[other]) + 1))


def _nodes(ranks: Sequence[RankHistory], numbers: Sequence[int | None]) -> set[frozenset[int]]:
    """The ranks of each machine, if there are several."""
    nodes: dict[int, set[int]] = {}
    for index, (rank, number) in enumerate(zip(ranks, numbers, strict=True)):
        if number is None or rank.ranks_per_node < 2:
            return set()
        nodes.setdefault(number // rank.ranks_per_node, set()).add(index)
    return {frozenset(of_node) for of_node in nodes.values()} if len(nodes) > 1 else set()
