"""Values of CUPTI's range profiler: hardware counters of whole kernels, added up by the name of the kernel.

PyTorch writes one event for each range, and divides the time of the recording equally among them. These times say
nothing, so they are not kept: only the values are real.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from traceopt.analyzer.tables.json_values import amount

MOST_PAIRS = 20_000  # of a kernel and a metric
MOST_METRICS = 200  # of a range
LONGEST_NAME = 1_000
_MOST = 1e30


class CounterRanges(Struct, frozen=True):
    """All ranges of a kernel, and the sum of one metric over them."""

    kernel: str
    metric: str
    ranges: int
    total: float

    @property
    def mean(self) -> float:
        return self.total / self.ranges


class RangeTotals:
    """Adds up ranges while a file is read."""

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str], tuple[int, float]] = {}

    def add(self, kernel: object, metrics: object) -> None:
        """Odd names and values are ignored, and so is what exceeds the limits."""
        if not isinstance(kernel, str) or not isinstance(metrics, Mapping):
            return
        for name, value in list(metrics.items())[:MOST_METRICS]:
            known = amount(value, _MOST)
            if isinstance(name, str) and known is not None:
                self._add((kernel[:LONGEST_NAME], name[:LONGEST_NAME]), 1, known)

    def merge(self, other: Iterable[CounterRanges]) -> None:
        for one in other:
            self._add((one.kernel, one.metric), one.ranges, one.total)

    def finish(self) -> tuple[CounterRanges, ...]:
        return tuple(CounterRanges(*pair, *total) for pair, total in self._totals.items())

    def _add(self, pair: tuple[str, str], ranges: int, total: float) -> None:
        count, known = self._totals.get(pair, (0, 0.0))
        if count or len(self._totals) < MOST_PAIRS:
            self._totals[pair] = (count + ranges, known + total)
