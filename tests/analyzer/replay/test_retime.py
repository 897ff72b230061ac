"""Re-timing runs of work gives the same times as a pass over all rows, whatever waits for whatever."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceopt.analyzer.arrays.intervals import EMPTY
from traceopt.analyzer.replay.graph import HOST, Graph, Rows
from traceopt.analyzer.replay.queues import EARLY
from traceopt.analyzer.replay.retime import Timing, condensed, one_pass, retime, step_times


def graph_of(seed: int, length: int, awaited_share: float, streams: int) -> Graph:
    """Random rows: some were issued before the window; the first row after them and the last row are borders."""
    chance = random.Random(seed)  # noqa: S311
    fixed = chance.randrange(4)
    borders = [fixed, *sorted(chance.sample(range(fixed + 1, fixed + length), chance.randrange(3))), fixed + length]
    count = fixed + length + 1
    columns: dict[str, list[int]] = {name: [] for name in Rows.__struct_fields__}
    stream = 0
    for row in range(count):
        if chance.random() < 0.2:
            stream = chance.randrange(HOST, streams)
        of_host = row >= fixed and (row in borders or stream == HOST)
        waits = row not in borders and row > 0 and chance.random() < awaited_share
        columns["host"].append(0 if row < fixed else chance.randrange(20))
        columns["stream"].append(HOST if of_host else max(stream, 0))
        columns["latency"].append(0 if of_host else EARLY if chance.random() < 0.1 else chance.randrange(30))
        columns["lead"].append(0 if of_host else chance.randrange(5))
        columns["duration"].append(0 if of_host else chance.randrange(50))
        columns["awaits"].append(chance.randrange(row) if waits else -1)
        columns["wake"].append(chance.randrange(-3, 6) if waits else 0)
    rows = Rows(**{name: np.array(values, np.int64) for name, values in columns.items()})
    none = np.full(count, -1)
    return Graph(
        rows=rows,
        host_start=np.cumsum(rows.host),
        work=none,
        call=none,
        inferred=none < 0,
        call_cost=none * 0,
        blocked_ns=0,
        unexplained=none,
        measured_end=np.array([chance.randrange(60) for _ in range(count)]),
        fixed=fixed,
        borders=np.array(borders),
        profiler=EMPTY,
        typical=np.arange(len(borders) - 1),
    )


def row_by_row(graph: Graph, rounds: int) -> Timing:
    with pytest.raises(StopIteration) as end:
        next(one_pass(graph, graph.rows, rounds))
    timing: Timing = end.value.value
    return timing


@given(st.integers(0, 2**32), st.integers(3, 60), st.sampled_from([0.0, 0.05, 0.5]), st.integers(1, 3), st.booleans())
def test_the_times_are_those_of_all_rows(seed: int, length: int, awaited: float, streams: int, twice: bool) -> None:
    graph = graph_of(seed, length, awaited, streams)
    expected = row_by_row(graph, 1 + twice)
    quick, whole = (replayed(graph, graph.rows, 1 + twice) for replayed in (step_times, retime))
    for timing in (quick, whole):
        assert timing.host.tolist() == expected.host.tolist()
        assert timing.device.tolist() == expected.device.tolist()
    assert whole.end.tolist() == expected.end.tolist()
    assert whole.clock.tolist() == expected.clock.tolist()


def test_work_that_nothing_awaits_is_one_row() -> None:
    graph = graph_of(1, 40, 0.0, 1)
    fewer, rows = condensed(graph, graph.rows)
    assert len(rows) == len(fewer.host_start) < 20
    assert rows.host.sum() == graph.rows.host.sum()
