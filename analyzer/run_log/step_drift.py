"""Whether the steps of a whole run became slower: at one step, gradually, or in some steps at regular distances.

A single change is tested with Pettitt's rank test (A. N. Pettitt, "A non-parametric approach to the change-point
problem", Applied Statistics 28, 1979), a trend with the test of Mann and Kendall. Both judge the medians of blocks of
steps, so single long steps have no weight. Neighboring blocks resemble each other in real runs: the number of
independent blocks is reduced by their autocorrelation (Hamed and Rao, Journal of Hydrology 204, 1998, for an
autoregressive process of order 1). The slope is the Theil-Sen estimator.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.run_log.step_ledger import Ledger
from traceopt.analyzer.run_log.step_memory import StepMemory
from traceopt.analyzer.tables.schema import I8

F8 = npt.NDArray[np.float64]

MIN_STEPS = 120  # in fewer steps, noise and a change look alike
MAX_BLOCKS = 48
MIN_BLOCK_STEPS = 5
EDGE_BLOCKS = 4  # fewer blocks on one side are no lasting change
P_VALUE = 1e-3
MIN_SPREADS = 4.0  # smallest change as a multiple of the spread of blocks (median absolute deviation, scaled)
# A change this large between blocks that do not overlap is certain, however much neighboring blocks resemble each
# other: random walks reach it in 1 of 1,000 series.
ABRUPT_SPREADS = 12.0
MAD_TO_SIGMA = 1.4826
MIN_REPEATS = 5  # of long steps
LONG = 1.5  # a long step as a multiple of the median
MAX_LONG_SHARE = 0.1
MIN_PERIODIC_SHARE = 0.8  # of the distances between long steps that are the same
MIN_READINGS = 5  # of memory on each side
LARGER_MEMORY = 1.1  # its median afterwards as a multiple of the one before
OUTER = (10, 90)  # percentiles that must be apart

MemoryOf = Literal["tensors on the GPU", "the peak on the GPU", "the process"]


class MemoryChange(Struct, frozen=True):
    """Memory that is larger afterwards: the medians."""

    of: MemoryOf
    before_bytes: int
    after_bytes: int


class Change(Struct, frozen=True):
    """From `step` on, the median step is `after_ns`, before it `before_ns`. None: from the first to the last block, the
    steps become longer. `data_ns` and `gc_ns` say how much of the difference is waiting for data and garbage
    collection. `samples` and `sample_size` (elements of a sample) are the median afterwards as a multiple of the one
    before; 1 if they are the same or not known. `memory` is what grew.
    """

    step: int | None
    before_ns: float
    after_ns: float
    data_ns: float
    gc_ns: float
    samples: float = 1.0
    sample_size: float = 1.0
    memory: MemoryChange | None = None


class Period(Struct, frozen=True):
    """Every `every` steps one takes `extra_ns` longer than the median step; `count` of these were seen."""

    every: int
    first_step: int
    extra_ns: float
    count: int


Cause = Literal["data", "gc", "sample size", "samples", "memory"]


class Drift(Struct, frozen=True):
    """`steps` is the number of judged steps, `slower_share` the share of their time that they would not take if all
    were like those before the change.
    """

    steps: int
    change: Change | None
    period: Period | None
    slower_share: float = 0.0


def main_cause(change: Change) -> Cause | None:
    """What makes up at least half of the difference, or what grew in the batches by at least half as much as the steps,
    else memory if it grew at all; None if it is none of these.
    """
    half_ns = (change.after_ns - change.before_ns) / 2
    enough = 1 + half_ns / change.before_ns
    if change.data_ns >= half_ns:
        return "data"
    if change.gc_ns >= half_ns:
        return "gc"
    if change.sample_size >= enough:
        return "sample size"
    if change.samples >= enough:
        return "samples"
    return "memory" if change.memory is not None else None


def find_drift(ledger: Ledger, memory: StepMemory | None = None) -> Drift | None:
    """Judges the steps without a profiler, without evaluations and saves; None if these are too few."""
    steps = ledger.usual
    if len(steps) < MIN_STEPS:
        return None
    own_ns = (ledger.step_ns - ledger.save_ns)[steps].astype(np.float64)
    edges = _edges(len(steps))
    blocks = _medians(own_ns, edges)
    at, trend = _change_at(blocks), _trend(blocks)
    if at is not None and trend is not None:
        if _error(blocks, trend) < _error(blocks, _split(blocks, at)):
            at = None
        else:
            trend = None
    change = None
    if at is not None:
        row = _refined(own_ns, int(edges[at]))
        change = Change(int(steps[row]), *_difference(ledger, memory, steps[:row], steps[row:]))
    elif trend is not None:
        quarter = len(steps) // 4
        change = Change(None, *_difference(ledger, memory, steps[:quarter], steps[-quarter:]))
    slower_share = 0.0 if change is None else max(0.0, 1 - change.before_ns / float(own_ns.mean()))
    return Drift(len(steps), change, _period(own_ns, steps), slower_share)


def _edges(count: int) -> I8:
    blocks = min(MAX_BLOCKS, count // MIN_BLOCK_STEPS)
    return np.linspace(0, count, blocks + 1).astype(np.int64)


def _medians(values: F8, edges: I8) -> F8:
    pairs = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    return np.array([median(values[first:last]) for first, last in pairs])


def _change_at(blocks: F8) -> int | None:
    """The first block after the change; None if no change is certain."""
    count = len(blocks)
    ranks = _ranks(blocks)
    statistic = np.abs(2 * np.cumsum(ranks)[:-1] - np.arange(1, count) * (count + 1))
    # The maximum of the statistic is too close to the middle, so the place is the split that fits best.
    at = min(range(EDGE_BLOCKS, count - EDGE_BLOCKS + 1), key=lambda split: _error(blocks, _split(blocks, split)))
    before, after = median(blocks[:at]), median(blocks[at:])
    rest = blocks - _split(blocks, at)
    # The statistic grows with the square of the number of blocks, its standard deviation with the power 3/2.
    scaled = float(statistic.max()) ** 2 * _independent_share(rest)
    p_value = 2 * math.exp(-6 * scaled / (count**3 + count**2))
    change, spread = abs(after - before), _spread(rest)
    abrupt = change >= ABRUPT_SPREADS * spread and _are_apart(blocks[:at], blocks[at:])
    return at if abrupt or (p_value < P_VALUE and change >= MIN_SPREADS * spread) else None


def _are_apart(before: F8, after: F8) -> bool:
    """Whether no value of one side lies among those of the other."""
    return bool(before.max() < after.min() or after.max() < before.min())


def _split(blocks: F8, at: int) -> F8:
    """The median of the blocks on each side."""
    return np.where(np.arange(len(blocks)) < at, median(blocks[:at]), median(blocks[at:]))


def _trend(blocks: F8) -> F8 | None:
    """The line through the blocks; None if no trend is certain."""
    count = len(blocks)
    first, last = np.triu_indices(count, 1)
    differences = blocks[last] - blocks[first]
    slope = median(differences / (last - first))
    positions = np.arange(count)
    line = slope * positions
    line = line + median(blocks - line)
    rest = blocks - line
    variance = count * (count - 1) * (2 * count + 5) / 18 / _independent_share(rest)
    certainty = abs(float(np.sign(differences).sum())) / math.sqrt(variance)
    p_value = math.erfc(certainty / math.sqrt(2))
    certain = p_value < P_VALUE and abs(line[-1] - line[0]) >= MIN_SPREADS * _spread(rest)
    return np.asarray(line, np.float64) if certain else None


def _ranks(values: F8) -> F8:
    """Ranks from 1; equal values share the mean of theirs."""
    ordered = np.sort(values)
    return (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") + 1) / 2


def _independent_share(rest: F8) -> float:
    """Independent blocks as a share of all, by the autocorrelation of their ranks at lag 1."""
    ranks = _ranks(rest)
    ranks = ranks - ranks.mean()
    power = float((ranks**2).sum())
    correlation = float((ranks[1:] * ranks[:-1]).sum()) / power if power else 0.0
    # The estimate is biased by about -(1 + 4 r) / n in short series (Kendall 1954).
    correlation = min(0.95, max(0.0, correlation + (1 + 4 * correlation) / len(rest)))
    return (1 - correlation) / (1 + correlation)


def _spread(rest: F8) -> float:
    return MAD_TO_SIGMA * median(np.abs(rest))


def _error(blocks: F8, fitted: F8) -> float:
    return float(np.abs(blocks - fitted).sum())


def _refined(values: F8, at: int) -> int:
    """The step of the change, near step `at`: it splits short from long steps best."""
    before, after = median(values[:at]), median(values[at:])
    is_after = (values > (before + after) / 2) == (after > before)
    split = int(np.argmin(np.cumsum(np.where(is_after, 1, -1)))) + 1
    return min(max(split, MIN_BLOCK_STEPS), len(values) - MIN_BLOCK_STEPS)


def _difference(
    ledger: Ledger, memory: StepMemory | None, before: I8, after: I8
) -> tuple[float, float, float, float, float, float, MemoryChange | None]:
    own_ns = ledger.step_ns - ledger.save_ns
    data_ns = 0.0 if ledger.fetch_ns is None else median(ledger.fetch_ns[after]) - median(ledger.fetch_ns[before])
    gc_ns = float(ledger.gc_ns[after].mean() - ledger.gc_ns[before].mean())
    samples = _ratio(ledger.samples, before, after)
    sample_size = _ratio(ledger.elements, before, after) / samples
    grown = _larger_memory(memory, before, after) if memory is not None else None
    return median(own_ns[before]), median(own_ns[after]), data_ns, gc_ns, samples, sample_size, grown


def _ratio(counts: I8 | None, before: I8, after: I8) -> float:
    """The median afterwards as a multiple of the one before; 1 if steps without a batch are usual, or none is known."""
    if counts is None:
        return 1.0
    first, last = median(counts[before]), median(counts[after])
    return last / first if first > 0 and last > 0 else 1.0


def _larger_memory(memory: StepMemory, before: I8, after: I8) -> MemoryChange | None:
    """The first kind of memory whose readings on the two sides are apart; None if there is none."""
    kinds: tuple[tuple[MemoryOf, I8], ...] = (
        ("tensors on the GPU", memory.device_bytes),
        ("the peak on the GPU", memory.device_peak_bytes),
        ("the process", memory.process_bytes),
    )
    for of, values in kinds:
        first, last = (memory.between(values, int(side[0]), int(side[-1])) for side in (before, after))
        if min(len(first), len(last)) < MIN_READINGS:
            continue
        apart = np.percentile(last, OUTER[0]) > np.percentile(first, OUTER[1])
        if apart and median(last) >= LARGER_MEMORY * median(first):
            return MemoryChange(of, int(median(first)), int(median(last)))
    return None


def _period(own_ns: F8, steps: I8) -> Period | None:
    usual = median(own_ns)
    long = np.flatnonzero(own_ns >= LONG * usual)
    if len(long) < MIN_REPEATS or len(long) > MAX_LONG_SHARE * len(own_ns):
        return None
    distances = np.diff(steps[long])
    every = round(median(distances))
    if every < 2 or np.count_nonzero(distances == every) < MIN_PERIODIC_SHARE * len(distances):
        return None
    return Period(every, int(steps[long[0]]), median(own_ns[long]) - usual, len(long))
