"""The call tree agrees with its definition; its cost depends on the number of slices, not on their depth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from traceopt.analyzer.timeline import call_tree
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP, PYTHON, RUNTIME, Slices, build_slices, enclosing
from traceopt.testing.events import annotation, op, python, read, runtime

Rows = list[tuple[int, int, int]]  # thread, start, duration

rows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 25), st.integers(0, 12)), max_size=25)


def ordered(slices: Rows) -> Rows:
    return sorted(slices, key=lambda row: (row[0], row[1], -row[2]))


def columns(slices: Rows, unit: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    array = np.array(ordered(slices), np.int64).reshape(-1, 3)
    return array[:, 0].astype(np.int32), array[:, 1] * unit, (array[:, 1] + array[:, 2]) * unit


def naive_parents(slices: Rows, slack: int) -> list[int]:
    """The closest earlier slice of the same thread that is open at the start and reaches the end, within `slack`."""
    table = [(thread, start, start + duration) for thread, start, duration in ordered(slices)]
    parents = []
    for row, (thread, start, end) in enumerate(table):
        enclosing_rows = [
            earlier
            for earlier, (other, _, other_end) in enumerate(table[:row])
            if other == thread and other_end > start and other_end >= end - slack
        ]
        parents.append(max(enclosing_rows, default=-1))
    return parents


def made(slices: Rows, unit: int = 1) -> Slices:
    thread, start, end = columns(slices, unit)
    n = len(start)
    none = np.zeros(n, np.int32)
    return Slices(thread, start, end, none.astype(np.uint8), none, none, enclosing(thread, start, end, unit))


@given(rows)
@example([(0, 0, 10), (0, 5, 10), (0, 6, 2), (0, 12, 1)])  # the second crosses the end of the first
@example([(0, 3, 5), (0, 3, 5), (0, 3, 0), (0, 8, 0)])  # equal starts, zero lengths at both ends
@example([(0, 0, 9), (1, 1, 2), (0, 2, 3), (1, 2, 1)])  # threads do not enclose each other
def test_parent_is_the_nearest_slice_that_encloses(slices: Rows) -> None:
    assert enclosing(*columns(slices)).tolist() == naive_parents(slices, slack=0)


@given(rows)
def test_times_cut_to_microseconds_may_overhang_by_one(slices: Rows) -> None:
    found = enclosing(*columns(slices, unit=1000), slack_ns=1000)
    assert found.tolist() == naive_parents(slices, slack=1)


def test_times_that_a_program_moved_are_rounded() -> None:
    """Microseconds since 1970 as floating-point numbers: a frame may seem to end 2 ns after the one around it."""
    slices = build_slices(read([python("outer", 100.0, 50.001), python("inner", 110.0, 40.003)]))
    assert slices.parent.tolist() == [-1, 0]


@given(rows, st.randoms(use_true_random=False), st.sampled_from([1, 1000]))
def test_ancestors_agree_with_a_walk(slices: Rows, random: object, unit: int) -> None:
    tree = made(slices, unit)
    alone = [row for row in range(len(slices)) if row not in tree.parent and random.random() < 0.2]  # type: ignore[attr-defined]
    tree.parent[alone] = -1  # like a step, which encloses nothing and is between the slices of a frame
    wanted = np.array([random.random() < 0.3 for _ in slices], bool)  # type: ignore[attr-defined]

    def walk(row: int) -> int:
        while row >= 0 and not wanted[row]:
            row = int(tree.parent[row])
        return row

    expected = [walk(row) for row in range(len(slices))]
    assert tree.nearest(wanted).tolist() == expected
    asked = np.array([-1, *range(len(slices)), -1])
    assert tree.ancestor(asked, wanted).tolist() == [-1, *expected, -1]
    assert [tree.ancestor(asked[row : row + 1], wanted).tolist() for row in range(len(asked))] == [
        [row] for row in [-1, *expected, -1]
    ]  # few, so that some are found by climbing


@given(rows, st.lists(st.integers(-2, 40), max_size=8))
def test_the_slice_open_at_a_time_is_the_last_to_begin(slices: Rows, times: list[int]) -> None:
    tree = made(slices)
    for thread in range(3):
        open_rows = [
            [row for row in range(len(slices)) if tree.thread[row] == thread and tree.start[row] <= t < tree.end[row]]
            for t in times
        ]
        assert tree.at(thread, np.array(times, np.int64)).tolist() == [max(rows, default=-1) for rows in open_rows]


@given(rows, st.integers(0, 3), st.sampled_from([1, 1000]))
def test_deep_trees_are_read_otherwise_and_alike(slices: Rows, levels: int, unit: int) -> None:
    """Deep trees are not climbed level by level."""
    thread, start, end = columns(slices, unit)
    tree = made(slices)
    times = np.arange(-2, 40)
    wanted = tree.start % 3 == 0
    asked = np.arange(len(tree))
    expected = [tree.at(1, times), tree.ancestor(asked, wanted), enclosing(thread, start, end, unit)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(call_tree, "_LEVELS", levels)
        found = [tree.at(1, times), tree.ancestor(asked, wanted), enclosing(thread, start, end, unit)]
    assert [array.tolist() for array in found] == [array.tolist() for array in expected]


class CountingRounds:
    """Counts the rounds of a pointer-jumping loop by its calls of np.maximum."""

    def __init__(self) -> None:
        self.rounds = 0

    def __call__(self, *args: object, **kwargs: object) -> object:
        self.rounds += 1
        return np.maximum(*args, **kwargs)  # type: ignore[call-overload]


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> CountingRounds:
    counting = CountingRounds()

    class Numpy:
        maximum = counting

        def __getattr__(self, name: str) -> object:
            return getattr(np, name)

    monkeypatch.setattr(call_tree, "np", Numpy())
    return counting


def test_flat_siblings_take_few_rounds(counter: CountingRounds) -> None:
    n = 200_000
    start = np.concatenate(([0], np.arange(n, dtype=np.int64) * 10))
    end = np.concatenate(([n * 10], start[1:] + 5))
    parent = enclosing(np.zeros(n + 1, np.int32), start, end)
    assert parent[0] == -1
    assert (parent[1:] == 0).all()
    assert counter.rounds <= 20  # 2 ** 18 > n


def test_a_deep_stack_is_looked_up() -> None:
    depth = 10_000
    start = np.arange(depth, dtype=np.int64)
    end = 3 * depth - start
    after = np.array([4 * depth], np.int64)  # leaves the whole stack at once
    thread = np.zeros(depth + 1, np.int32)
    start, end = np.concatenate((start, after)), np.concatenate((end, after + 1))
    parent = enclosing(thread, start, end)
    assert parent[:-1].tolist() == list(range(-1, depth - 1))
    assert parent[-1] == -1
    tree = Slices(thread, start, end, thread.astype(np.uint8), thread, thread, parent)
    root = tree.nearest(np.arange(depth + 1) == 0)
    assert (root[:-1] == 0).all()
    assert root[-1] == -1


def test_slices_of_a_trace() -> None:
    """Slices that begin together nest as Python frame, annotation, operator, runtime call."""
    trace = read(
        [
            runtime("cudaLaunchKernel", 10, 5, correlation=3),
            op("aten::mm", 10, 5),
            annotation("step", 10, 5),
            python("train.py(3): step", 10, 5),
            op("aten::relu", 16, 2),
            op("aten::add", 11, 1, tid=2),
        ]
    )
    slices = build_slices(trace)
    assert [trace.names[name] for name in slices.name] == [
        "train.py(3): step",
        "step",
        "aten::mm",
        "cudaLaunchKernel",
        "aten::relu",
        "aten::add",
    ]
    assert slices.parent.tolist() == [-1, 0, 1, 2, -1, -1]
    assert slices.kind.tolist() == [PYTHON, ANNOTATION, OP, RUNTIME, OP, OP]
    assert slices.of(OP, len(trace.ops)).tolist() == [2, 5, 4]  # in order of start: mm, add, relu
    assert slices.of(RUNTIME, 1).tolist() == [3]


def test_resolution_comes_from_the_times() -> None:
    whole = read([op("outer", 0, 10), op("inner", 4, 7)])  # whole microseconds as up to 2023: one ends too late
    assert build_slices(whole).parent.tolist() == [-1, 0]
    fine = read([op("outer", 0, 10), op("inner", 4.001, 7)])
    assert build_slices(fine).parent.tolist() == [-1, -1]


def test_a_trace_without_cpu_slices() -> None:
    slices = build_slices(read([op("gone", float("nan"), 1)]))
    assert len(slices) == len(slices.nearest(np.empty(0, bool))) == 0


def test_spans_go_from_the_first_to_the_last_slice_inside_an_owner() -> None:
    trace = read(
        [
            annotation("forward", 0, 100),
            op("aten::pack", 10, 5),
            op("aten::pack", 60, 20),
            annotation("forward", 200, 100),
            op("aten::other", 210, 5),
            op("aten::pack", 400, 5),
        ]
    )
    slices = build_slices(trace)
    named = np.array([trace.names[code] for code in slices.name])
    spans = slices.spans(np.flatnonzero(named == "aten::pack"), named == "forward")
    assert (spans.slice.tolist(), spans.start.tolist(), spans.end.tolist()) == ([0], [10_000], [80_000])
    assert len(slices.spans(np.empty(0, np.int64), named == "forward").slice) == 0


def test_slices_that_enclose_a_wanted_one() -> None:
    """The wanted slices and all around them; a profiler step encloses nothing."""
    names = ["ProfilerStep#0", "outer", "inner", "wanted", "beside", "after"]
    times = [(5, 85), (0, 50), (10, 30), (20, 5), (42, 5), (60, 10)]
    events = [
        (annotation if index == 0 else op)(name, *time)
        for index, (name, time) in enumerate(zip(names, times, strict=True))
    ]
    trace = read(events)
    slices = build_slices(trace)
    named = np.array([trace.names[code] for code in slices.name])
    assert set(named[slices.encloses(named == "wanted")]) == {"outer", "inner", "wanted"}
    assert not slices.encloses(named == "none").any()
    assert set(named[slices.encloses(named == "ProfilerStep#0")]) == {"ProfilerStep#0"}


def test_the_outermost_slice_that_follows_on_the_same_thread() -> None:
    trace = read(
        [
            op("aten::conv2d", 0, 50),
            op("aten::convolution", 10, 20),
            op("aten::relu", 60, 5),
            op("aten::add", 0, 5, tid=2),
        ]
    )
    slices = build_slices(trace)
    following = slices.next_outermost(np.arange(len(slices)), slices.kind == OP)
    names = [trace.names[slices.name[row]] if row >= 0 else None for row in following]
    assert names == ["aten::relu", "aten::relu", None, None]


def test_open_slices_of_several_threads() -> None:
    slices = build_slices(read([op("aten::mm", 0, 50), op("aten::add", 20, 50, tid=2)]))
    threads, time = slices.thread[[1, 0, 0]], np.array([30_000, 30_000, 60_000])
    assert slices.at_threads(threads, time).tolist() == [1, 0, -1]
