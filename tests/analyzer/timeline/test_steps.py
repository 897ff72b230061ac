"""The measured steps: the profiler's own marks, else an annotation that repeats, else the whole trace."""

from __future__ import annotations

import numpy as np
import pytest

from traceopt.analyzer.timeline.steps import Steps, find_steps, usual_interval
from traceopt.testing.events import Json, annotation, kernel, op, python, read, runtime, span


def work(until: float, tid: int = 1) -> list[Json]:
    return [op("aten::mm", at, 5, tid=tid) for at in np.arange(0, until, 10).tolist()]


def test_profiler_steps() -> None:
    marks = [annotation(f"ProfilerStep#{i}", 10 + 100 * i, 90 + i) for i in range(3)]
    copies = [span("gpu_user_annotation", f"ProfilerStep#{i}", 15 + 100 * i, 99, tid=7) for i in range(3)]
    steps = find_steps(read([*copies, *marks, *work(320)]))
    assert (steps.source, steps.count) == ("profiler_step", 3)
    assert steps.names == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    assert steps.start.tolist() == [10_000, 110_000, 210_000]
    assert steps.duration.tolist() == [90_000, 91_000, 92_000]
    assert steps.window == (10_000, 302_000)
    assert steps.window_ns == 292_000
    assert steps.edges.tolist() == [10_000, 110_000, 210_000, 302_000]
    assert steps.median_index == 1


@pytest.mark.parametrize(
    ("durations", "index"), [((90, 80), 1), ((90, 3), 0), ((3, 90), 1), ((90, 3, 80), 2), ((4,), 0)]
)
def test_the_step_to_show_is_the_median_one_and_no_stump(durations: tuple[int, ...], index: int) -> None:
    marks = [annotation(f"ProfilerStep#{i}", 100 * i, duration) for i, duration in enumerate(durations)]
    assert find_steps(read(marks)).median_index == index


@pytest.mark.parametrize("name", ["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "a phase of mine"])
def test_no_step_is_empty(name: str) -> None:
    spans = [(0, 90), (100, 90), (100, 0), (200, 90), (300, 0), (300, 90), (400, 90)]
    steps = find_steps(read([annotation(name, start, length) for start, length in spans] + work(490)))
    assert steps.source == "annotation"
    assert (steps.duration > 0).all()


def test_steps_are_in_order_of_time_and_not_of_name() -> None:
    steps = find_steps(read([annotation(f"ProfilerStep#{i}", 100 * i, 90) for i in (11, 8, 10, 9)]))
    assert steps.names == [f"ProfilerStep#{i}" for i in (8, 9, 10, 11)]
    assert find_steps(read([span("Operator", "ProfilerStep#7", 0, 9)])).names == ["ProfilerStep#7"]  # 2021
    assert find_steps(read([annotation("ProfilerStep #7", 0, 9)])).names == ["ProfilerStep #7"]
    assert find_steps(read([annotation("my ProfilerStep#7", 0, 9)])).source == "window"


def test_a_step_named_twice_counts_once() -> None:
    """Named again by another thread, sometimes before the main thread, or by a second range of the same thread."""
    marks = [annotation(f"ProfilerStep#{i}", 100 * i, 90) for i in range(4)]
    again = [annotation(f"ProfilerStep#{i}", 100 * i - 5 + 8 * (i % 2), 90, tid=2) for i in range(1, 4)]
    twice = [annotation("ProfilerStep#3", 395, 1)]
    steps = find_steps(read([*marks, *again, *twice]))
    assert steps.names == [f"ProfilerStep#{i}" for i in range(4)]
    assert steps.start.tolist() == [0, 100_000, 200_000, 300_000]


def test_an_annotation_that_repeats_stands_for_the_step() -> None:
    loop = [annotation("train_step", 100 * i, 80) for i in range(5)]
    inner = [annotation("forward", 100 * i + 10, 30) for i in range(5)]
    steps = find_steps(read([*loop, *inner, *work(480)]))
    assert (steps.source, steps.count) == ("annotation", 5)
    assert steps.names[0] == "train_step 1"
    assert steps.duration.tolist() == [80_000] * 5


@pytest.mark.parametrize(
    "annotations",
    [
        [annotation("train_step", 100 * i, 80) for i in range(2)],  # too few
        [annotation("train_step", 100 * i, 30) for i in range(5)],  # fills too little of the time
        [annotation("train_step", 20 * i, 18) for i in range(5)],  # covers too little of the trace
        [annotation("train_step", 100 * i, 95 if i else 10) for i in range(4)] + [annotation("train_step", 400, 399)],
        [annotation("train_step", 100 * i, 150) for i in range(4)],  # overlap
        [annotation("nccl:all_reduce", 100 * i, 90) for i in range(5)],  # part of a step
        [annotation("Optimizer.step#SGD.step", 100 * i, 90) for i in range(5)],
        [annotation(f"block {i}", 100 * i, 90) for i in range(5)],
        [],
    ],
)
def test_else_the_whole_trace_is_one_window(annotations: list[Json]) -> None:
    steps = find_steps(read([*annotations, *work(490), kernel("k", 5, 10, 1)]))
    assert (steps.source, steps.names, steps.count) == ("window", ["whole trace"], 1)
    assert steps.window[0] == 0
    assert steps.window[1] >= 485_000


def test_without_marks_an_iteration_reaches_from_one_loader_call_to_the_next() -> None:
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    steps = find_steps(read([annotation(loader, 100 * i, 10) for i in range(5)] + work(480)))
    assert (steps.source, steps.names) == ("annotation", [f"DataLoader iteration {i}" for i in range(1, 5)])
    assert steps.start.tolist() == [0, 100_000, 200_000, 300_000]
    assert steps.duration.tolist() == [100_000] * 4


def test_steps_without_length_are_none() -> None:
    steps = find_steps(read([*(annotation(f"ProfilerStep#{i}", 10, 0) for i in range(3)), op("aten::mm", 0, 5)]))
    assert (steps.source, steps.duration.tolist()) == ("window", [10_000])
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    steps = find_steps(read([annotation(loader, 5, 0) for _ in range(9)]))
    assert (steps.source, steps.duration.tolist()) == ("window", [1])


def test_the_training_thread() -> None:
    launches = [runtime("cudaLaunchKernel", i, 1, i, tid=2) for i in range(9)]
    trace = read(
        [*launches, op("aten::mm", 0, 1), annotation("Optimizer.step#SGD.step", 5, 1), python("f(1): g", 0, 1)]
    )
    assert trace.threads[find_steps(trace).thread].tid == 1  # autograd's thread may launch more
    trace = read([*launches, op("aten::mm", 0, 1)])
    assert trace.threads[find_steps(trace).thread].tid == 2
    trace = read([kernel("k", 0, 1, 1)])
    assert find_steps(trace).thread == -1
    trace = read([annotation("ProfilerStep#1", 0, 9, tid=3), *launches])
    assert trace.threads[find_steps(trace).thread].tid == 3


def test_amounts_by_step() -> None:
    steps = Steps("profiler_step", ["a", "b"], np.array([10, 30]), np.array([15, 10]), 0)
    times = np.array([9, 10, 24, 25, 29, 30, 39, 40, 99])
    found = steps.step_of(times)
    assert found.tolist() == [-1, 0, 0, 0, 0, 1, 1, 2, 2]  # between two steps: the earlier one
    assert steps.per_step(found, np.arange(1, 10)).tolist() == [2 + 3 + 4 + 5, 6 + 7]
    assert steps.per_step(np.array([], int), np.array([], int)).tolist() == [0, 0]
    assert Steps("window", ["w"], np.array([5]), np.array([0]), 0).window_ns == 1


def test_which_times_are_inside_the_steps() -> None:
    marks = [annotation(f"ProfilerStep#{i}", 100 + 100 * i, 100) for i in range(3)]
    steps = find_steps(read([op("aten::zeros", 0, 5), *marks]))
    time = np.array([99_999, 100_000, 250_000, 399_999, 400_000])
    assert steps.contain(time).tolist() == [False, True, True, True, False]
    assert steps.contain(time, np.array([0, 2])).tolist() == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("steps", "interval"),
    [
        ([3, 8, 13, 15], (5, 2 / 3)),
        ([0, 2, 9], (2, 0.5)),  # equally frequent: the shorter one
        ([4], (0, 0.0)),
        ([], (0, 0.0)),
    ],
)
def test_the_usual_interval_between_steps(steps: list[int], interval: tuple[int, float]) -> None:
    assert usual_interval(np.array(steps, np.int64)) == interval
