"""Steps of given lengths on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from support.quality import launched, on_a_gpu

from traceopt.analyzer.facts import Facts
from traceopt.testing import events as small_traces


def steps_of(
    lengths: Sequence[float], extra: Sequence[small_traces.Json] = (), work: float | None = None, **metadata: object
) -> Facts:
    """Steps of the given lengths (us); a kernel fills 9 ms of each, or `work` of its length."""
    events, start = list(extra), 0.0
    for index, length in enumerate(lengths):
        events.append(small_traces.annotation(f"ProfilerStep#{index}", start, length))
        events += launched(start + 20, 9_000 if work is None else work * length, index + 1)
        start += length
    return on_a_gpu(events, **metadata)
