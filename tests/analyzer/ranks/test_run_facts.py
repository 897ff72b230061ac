"""Comparison of ranks by their summaries: matching, clocks and medians follow their definitions, also for
many ranks.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from msgspec.structs import replace

from traceopt.analyzer.arrays.percentiles import medians_of_others
from traceopt.analyzer.ranks.rank_summary import Collectives, RankSummary, _places_in_step
from traceopt.analyzer.ranks.run_facts import RunFacts, _ids, _medians

STEPS = 4
CALLS = 6  # per step and group


def rank(
    number: int, groups: list[str], *, ahead_ns: int = 0, late_ns: int = 0, numbered: bool = True, calls: int = CALLS
) -> RankSummary:
    """A rank whose groups reduce something `calls` times in each step, all of a group at once."""
    rows = np.arange(STEPS * calls * len(groups))
    label, nth = rows % len(groups), rows // len(groups)
    end = 1_000_000 * (nth + 1)
    empty = np.zeros(len(rows), np.int64)
    columns = {
        "label": label,
        "step": nth // calls,
        "number": nth if numbered else empty - 1,
        "place": nth % calls,
        "start": end - 500_000 + late_ns + ahead_ns,
        "end": end + ahead_ns,
        "exposed": empty + 500_000,
    }
    others = {name: empty - 1 for name in Collectives.__struct_fields__ if name not in {"labels", *columns}}
    steps = np.full(STEPS, CALLS * 1_000_000)
    return RankSummary(
        rank=number,
        path=f"rank{number}.json",
        world_size=None,
        step_names=[f"ProfilerStep#{step}" for step in range(STEPS)],
        step_ns=float(CALLS * 1_000_000),
        durations=steps,
        parts={"compute": steps // 2},
        profiler_ns=np.zeros(STEPS, np.int64),
        places={},
        collectives=Collectives(labels=[f"{group}||all_reduce" for group in groups], **columns, **others),
        has_clock=True,
        sampled=False,
        trains=True,
        has_step_marks=True,
        free_cores=True,
    )


class TestManyRanks:
    def test_clocks_are_compared_from_group_to_group(self) -> None:
        """Rank n shares a group only with rank n + 1."""
        ahead = [0, 500, -7_000, 123, 9, 10**9, 4, 0]
        ranks = [rank(n, [f"pair{n - 1}", f"pair{n}"], ahead_ns=ahead[n]) for n in range(len(ahead))]
        assert RunFacts(ranks).clock_offset.tolist() == ahead

    def test_one_that_shares_no_group_has_no_clock_and_is_left_out(self) -> None:
        run = RunFacts([rank(0, ["a"]), rank(1, ["a"]), rank(2, ["b"])])
        assert np.isnan(run.clock_offset).tolist() == [False, False, True]
        assert set(run.matched.rank.tolist()) == {0, 1}

    def test_a_thousand_of_which_one_is_late(self) -> None:
        ranks = [rank(n, ["world", f"node{n // 8}"], late_ns=3000 if n == 900 else 0) for n in range(1024)]
        run = RunFacts(ranks)
        assert run.matched.count == STEPS * CALLS * (1 + 128)
        assert run.straggler is not None
        assert (run.straggler.ranks, run.straggler.share) == ([900], 1.0)
        assert run.straggler.wait_ns == 2 * CALLS * 3000
        assert run.waits[:, 900].tolist() == [2 * (CALLS - 1) * 3000, *[2 * CALLS * 3000] * (STEPS - 1)]

    def test_ranks_that_are_late_together(self) -> None:
        """Two ranks of one node come late; between the last two ranks there is next to no time."""
        late = {4: 3_000, 5: 3_010}
        run = RunFacts([rank(n, ["world"], late_ns=late.get(n, 10 * n)) for n in range(8)])
        assert run.straggler is not None
        assert (run.straggler.ranks, run.straggler.share) == ([4, 5], 1.0)
        assert run.straggler.wait_ns == CALLS * (3_010 - 70)

    def test_most_ranks_are_no_late_group(self) -> None:
        """One rank comes early, and the others at about the same time."""
        run = RunFacts([rank(n, ["world"], late_ns=10 * n if n else -3_000) for n in range(8)])
        assert run.straggler is not None
        assert run.straggler.wait_ns == CALLS * 10

    def test_the_first_collective_of_a_group_shows_only_when_recordings_started(self) -> None:
        ranks = [rank(n, ["world"]) for n in range(4)]
        start = ranks[3].collectives.start.copy()
        ranks[3] = replace(ranks[3], collectives=replace(ranks[3].collectives, start=start))
        start[0] += 400_000
        assert RunFacts(ranks).straggler is None
        start[1:] += 400_000
        run = RunFacts(ranks)
        assert run.straggler is not None
        assert run.straggler.ranks == [3]
        assert run.compared_steps.tolist() == list(range(STEPS))

    def test_a_step_that_only_has_the_first_collective_is_not_compared(self) -> None:
        run = RunFacts([rank(n, ["world"], late_ns=3_000 * (n == 1), calls=1) for n in range(4)])
        assert run.compared_steps.tolist() == list(range(1, STEPS))
        assert run.straggler is not None
        assert run.straggler.wait_ns == 3_000

    def test_the_others_wait_until_the_last_rank_enters(self) -> None:
        run = RunFacts([rank(n, ["world"], late_ns=late) for n, late in enumerate([0, 3_000, 1_000])])
        assert run.late_starts.tolist() == [[CALLS * 3_000, 0, CALLS * 2_000]] * STEPS
        assert run.late_start_ns(0) == CALLS * 3_000

    def test_the_wait_is_not_known_if_ranks_are_missing(self) -> None:
        every = [replace(rank(n, ["world"], late_ns=3_000 * n), world_size=3) for n in range(3)]
        assert RunFacts(every).late_start_ns(0) == CALLS * 6_000
        assert RunFacts(every[:2]).late_start_ns(0) is None
        assert RunFacts(every[:2]).missing == "Rank 2 of 3 is missing: no trace was read for it"
        assert RunFacts(every[:1]).late_start_ns(0) is None
        assert RunFacts([rank(0, ["world"]), rank(0, ["world"])]).late_start_ns(0) is None

    def test_without_numbers_by_their_places(self) -> None:
        ranks = [rank(n, ["world"], numbered=False) for n in range(3)]
        assert RunFacts(ranks).matched.count == STEPS * CALLS


Columns = st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 3)), max_size=30)


@given(Columns)
def test_ids_are_the_same_for_the_same_rows_in_the_order_of_their_first(rows: list[tuple[int, int]]) -> None:
    first, second = (np.array([row[i] for row in rows], np.int64) for i in (0, 1))
    known: dict[tuple[int, int], int] = {}
    assert _ids(first, second).tolist() == [known.setdefault(row, len(known)) for row in rows]


@given(Columns)
def test_places_count_those_before_of_the_same_label_and_step(rows: list[tuple[int, int]]) -> None:
    label, step = (np.array([row[i] for row in rows], np.int64) for i in (0, 1))
    assert _places_in_step(label, step).tolist() == [rows[:index].count(row) for index, row in enumerate(rows)]


VALUES = st.integers(-1000, 1000)


@given(st.lists(st.tuples(st.integers(0, 4), VALUES), max_size=30))
def test_medians_of_groups(rows: list[tuple[int, int]]) -> None:
    found = _medians(np.array([g for g, _ in rows], np.int64), np.array([float(v) for _, v in rows]), 5)
    for group in range(5):
        values = [value for of, value in rows if of == group]
        np.testing.assert_equal(found[group], np.median(values) if values else np.nan)


@given(arrays.arrays(np.float64, st.tuples(st.integers(0, 4), st.integers(2, 9)), elements=VALUES.map(float)))
def test_medians_of_others(values: npt.NDArray[np.float64]) -> None:
    found = medians_of_others(values)
    for column in range(values.shape[1]):
        assert found[:, column].tolist() == np.median(np.delete(values, column, axis=1), axis=1).tolist()
