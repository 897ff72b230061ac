"""The cost of recording is spread over the events of the steps, and no change saves it."""

from __future__ import annotations

import numpy as np
import pytest
from support.traces import GetExample

from traceopt.analyzer.arrays.intervals import Intervals, union
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import RemoveHost, RemoveLaunches
from traceopt.analyzer.replay.profiler_cost import MOST_NS, find_profiler_cost
from traceopt.analyzer.timeline.call_tree import OP, PYTHON, Slices
from traceopt.analyzer.timeline.marks.marks import Marks
from traceopt.analyzer.timeline.steps import find_steps
from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING

NOTHING = np.empty(0, np.int64)
STEPS = find_steps(
    Marks("profiler_step", ["1", "2"], np.array([0, 50_000]), np.array([50_000, 100_000]), 0), NOTHING, NOTHING
)


def slices(start: list[int], kind: list[int]) -> Slices:
    of = np.array(start, np.int64)
    zeros = np.zeros(len(of), np.int32)
    return Slices(zeros, of, of + 5_000, np.array(kind, np.uint8), zeros, zeros, zeros - 1)


def test_each_event_of_the_steps_has_its_part() -> None:
    events = slices([-10, 0, 10_000, 60_000, 70_000, 100_000], [OP] * 6)  # the first and the last are outside
    cost = find_profiler_cost(events, STEPS, 200.0, True)  # per step, two steps
    assert cost.start.tolist() == [0, 10_000, 60_000, 70_000]
    assert set(cost.length.tolist()) == {100}


def test_an_operator_also_does_something_until_the_next_one() -> None:
    """600 ns for each event is more than half of what passes between some of them."""
    cost = find_profiler_cost(slices([0, 0, 1_000, 1_400, 10_000], [OP] * 5), STEPS, 1_500.0, True)
    assert cost.start.tolist() == [0, 1_000, 1_400, 10_000]
    assert cost.length.tolist() == [500, 200, 600, 600]


def test_frames_that_were_recorded_at_another_time_cost_nothing() -> None:
    events = slices([0, 10_000], [PYTHON, OP])
    assert find_profiler_cost(events, STEPS, 100.0, False).start.tolist() == [10_000]
    assert find_profiler_cost(events, STEPS, 100.0, True).start.tolist() == [0, 10_000]


@pytest.mark.parametrize(("extra_ns", "total"), [(0.0, 0), (-5.0, 0), (1e9, MOST_NS)])
def test_what_events_do_not_explain_is_not_the_profilers(extra_ns: float, total: int) -> None:
    assert find_profiler_cost(slices([0], [OP]), STEPS, extra_ns, True).total == total
    assert find_profiler_cost(slices([], []), STEPS, extra_ns, True).total == 0


def with_cost(facts: Facts, cost: Intervals) -> Facts:
    changed = Facts(facts.trace)
    changed.__dict__["profiler_cost"] = cost  # instead of the real one
    return changed


def test_no_change_gives_it_back(example: GetExample) -> None:
    facts = example("cpu_only").facts
    loading = facts.cpu_phases.areas[DATA_LOADING]
    half = union(loading.start, (loading.start + loading.end) // 2)
    costly = with_cost(facts, half)
    gain, real = (f.replayed.step_ns - f.replay([RemoveHost(loading)]).step_ns for f in (facts, costly))
    assert real == pytest.approx(gain / 2, rel=0.1)


def test_launches_that_go_leave_it_too(example: GetExample) -> None:
    facts = example("launch_bound").facts
    costly = with_cost(facts, facts.recorded_steps.host_window)
    work = facts.gpu.is_kernel
    assert facts.replay([RemoveLaunches(work)]).rows.host.sum() < facts.replay_graph.rows.host.sum()
    assert costly.replay([RemoveLaunches(work)]).rows.host.sum() == costly.replay_graph.rows.host.sum()
