"""Each idle gap of the GPU is attributed to what delayed the next kernel, to the nanosecond."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.facts import facts_of

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING, GRAPH_CALLBACK, HOST_SYNC, IDLE_CAUSES, QUEUED
from traceopt.document import sections
from traceopt.testing.events import Json, annotation, kernel, op, python, read, runtime, span

MAIN, AUTOGRAD = 1, 2
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def launched(start: float, duration: float, launch: float, correlation: int, **args: Any) -> list[Json]:
    """A kernel, and the call of 5 us that launched it (on the main thread, or on `tid`)."""
    tid = args.pop("tid", MAIN)
    return [
        runtime("cudaLaunchKernel", launch, 5, correlation, tid),
        kernel("gemm", start, duration, correlation, **args),
    ]


def causes_ns(facts: Facts) -> dict[str, int]:
    """Idle time by cause, without the time before the first and after the last kernel."""
    work, gaps = facts.gpu.work, facts.gaps
    between = (gaps.start >= work.start.min()) & (gaps.end <= work.end.max())
    total = facts.idle.amount[between].sum(axis=0).tolist()
    return {cause.key: ns for cause, ns in zip(IDLE_CAUSES, total, strict=True) if ns}


def test_gap_in_the_data_loader() -> None:
    facts = facts_of(*launched(100, 100, 90, 1), annotation(LOADER, 150, 250), *launched(420, 100, 410, 2))
    # [200, 400) in the loader, [410, 415) the launch, the rest of [200, 420) untraced
    assert causes_ns(facts) == {"data_loading": 200_000, "launch": 5_000, "untraced": 15_000}


def test_item_and_the_refill_are_the_sync() -> None:
    """The host was 40 us ahead and takes 85 us to launch again: 40 us of these are due to the sync."""
    facts = facts_of(
        kernel("before", 0, 55, 99),
        *launched(55, 245, 10, 1),  # waited 40 us between launch and start, runs until 300
        op("aten::item", 18, 304),
        op("aten::_local_scalar_dense", 19, 302),
        runtime("cudaStreamSynchronize", 20, 300, 2),  # until 320
        *launched(410, 190, 400, 3),
        *launched(600, 100, 430, 4),  # launched long before it starts: the host is ahead again
    )
    assert causes_ns(facts) == {"host_sync": 20_000 + 40_000, "launch": 5_000, "untraced": 45_000}
    (stall,) = facts.syncs.stall.tolist()
    assert stall == 60_000
    assert facts.syncs.reason.tolist() == ["scalar_read"]


def test_the_refill_ends_where_the_host_is_ahead_again() -> None:
    """Launched 300 us ahead before the sync, so the lead allows more; but the queue is full again after 85 us."""
    facts = facts_of(
        *launched(315, 85, 10, 1),
        runtime("cudaStreamSynchronize", 20, 390, 2),  # until 410
        *launched(500, 100, 490, 3),
        *launched(600, 100, 500, 4),
        *launched(900, 50, 890, 5),  # starved again long after: not due to the sync
    )
    assert causes_ns(facts) == {"host_sync": 10_000 + 90_000, "launch": 5_000, "untraced": 195_000}


def test_work_that_was_launched_before_the_gap_is_queued() -> None:
    facts = facts_of(
        *launched(100, 100, 90, 1),
        *launched(300, 100, 150, 2),
        op("aten::mm", 200, 100),  # whatever the host does in the meantime
    )
    assert causes_ns(facts) == {"queued": 100_000}


def test_work_launched_in_the_gap_is_queued_once_launches_take_no_longer() -> None:
    """A launch reaches an idle GPU within 30 us; a longer delay is not the host's."""
    facts = facts_of(*launched(100, 100, 90, 1), *launched(400, 100, 245, 2))
    assert causes_ns(facts) == {"launch": 5_000, "untraced": 45_000 + 30_000, "queued": 120_000}


def test_work_without_a_launch_is_queued() -> None:
    facts = facts_of(*launched(100, 100, 90, 1), kernel("orphan", 300, 100, 77))
    assert causes_ns(facts) == {"queued": 100_000}


def test_without_any_launches_nothing_is_known() -> None:
    facts = facts_of(kernel("a", 100, 100, 1), kernel("b", 300, 100, 2))
    assert causes_ns(facts) == {"untraced": 100_000}


def test_the_tail_is_the_training_threads() -> None:
    facts = facts_of(
        *launched(100, 100, 90, 1),
        python("train.py(9): evaluate", 150, 650),
        python("logging/__init__.py(1): info", 400, 100),
    )
    tail = facts.gaps.start == 200_000
    assert tail.sum() == 1
    causes = [cause.key for cause in IDLE_CAUSES]
    amount = dict(zip(causes, facts.idle.amount[tail][0].tolist(), strict=True))
    assert {cause: ns for cause, ns in amount.items() if ns} == {
        "logging": 100_000,
        "long_python": 500_000,  # of a function that runs no operator
        "untraced": 200_000,
    }
    assert facts.gaps.next_row[tail] == len(facts.gpu.work)


def test_the_launching_thread_is_asked() -> None:
    """Autograd's thread launches the next kernel while the main thread waits in Python for the backward."""
    facts = facts_of(
        *launched(100, 100, 90, 1),
        python("torch/autograd/graph.py(8): _engine_run_backward", 180, 700),
        op("autograd::engine::evaluate_function: MmBackward0", 190, 140, AUTOGRAD),
        *launched(320, 100, 310, 2, tid=AUTOGRAD),
    )
    assert causes_ns(facts) == {"launch": 120_000}


def test_where_the_launching_thread_shows_nothing_the_main_thread_is_asked() -> None:
    facts = facts_of(*launched(100, 100, 90, 1), annotation(LOADER, 210, 90), *launched(320, 100, 310, 2, tid=AUTOGRAD))
    assert causes_ns(facts) == {"data_loading": 90_000, "launch": 5_000, "untraced": 25_000}


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ("Pageable", {"host_sync": 55_000, "launch": 5_000, "untraced": 35_000}),
        ("Pinned", {"launch": 60_000, "untraced": 35_000}),
    ],
)
def test_a_copy_to_pageable_memory_blocks(memory: str, expected: dict[str, int]) -> None:
    copy = span("gpu_memcpy", f"Memcpy DtoH (Device -> {memory})", 200, 5, 7, device=0, stream=7, correlation=2)
    facts = facts_of(
        *launched(50, 150, 40, 1),
        runtime("cudaMemcpyAsync", 60, 200, 2),  # until 260
        copy,
        *launched(300, 100, 290, 3),
    )
    # the gap is [205, 300); 260 - 205 = 55 us of it inside the call
    assert causes_ns(facts) == expected


def test_a_sync_under_a_busy_gpu_costs_nothing() -> None:
    facts = facts_of(
        *launched(50, 300, 40, 1), runtime("cudaDeviceSynchronize", 100, 200, 2), *launched(350, 100, 320, 3)
    )
    assert facts.syncs.stall.tolist() == [0]
    assert facts.idle.total_ns(HOST_SYNC) == 0


def test_a_gap_is_cut_at_the_border_of_steps() -> None:
    facts = facts_of(*launched(100, 800, 90, 1), annotation(LOADER, 850, 260), *launched(1120, 100, 1100, 2), steps=2)
    gaps = facts.gaps
    around = (gaps.start >= 900_000) & (gaps.end <= 1_120_000)
    assert list(
        zip(gaps.start[around].tolist(), gaps.end[around].tolist(), gaps.step[around].tolist(), strict=True)
    ) == [(900_000, 1_000_000, 0), (1_000_000, 1_120_000, 1)]
    loading = IDLE_CAUSES.index(DATA_LOADING)
    assert facts.idle.by_step[:, loading].tolist() == [100_000, 110_000]


def test_allocation() -> None:
    facts = facts_of(
        *launched(100, 100, 90, 1),
        op("aten::empty", 195, 210),
        runtime("cudaMalloc", 210, 190, 2),
        *launched(420, 100, 410, 3),
    )
    assert causes_ns(facts) == {"allocation": 190_000, "launch": 10_000 + 5_000 + 5_000, "untraced": 10_000}


@pytest.mark.parametrize(
    ("kernel_us", "expected"),
    [
        (
            100,
            {"module_load": 5_000_000, "unrecorded": 5_000, "untraced": 8_000},
        ),  # the GPU starves: the driver loads code
        (5_050, {"launch": 55_000, "untraced": 8_000}),  # the GPU works: the call waits for room in the queue
    ],
)
def test_a_slow_first_call(kernel_us: float, expected: dict[str, int]) -> None:
    facts = facts_of(
        *launched(100, kernel_us, 90, 1),
        runtime("cudaLaunchKernel", 205, 5_000, 2),  # until 5205
        kernel("gemm", 5_213, 100, 2),
        step_us=10_000,
    )
    assert causes_ns(facts) == expected


def test_launch_latency_of_the_gap_between_two_busy_streams_counts_once() -> None:
    """Idle means that no stream works."""
    facts = facts_of(
        *launched(100, 200, 90, 1, stream=7),
        *launched(150, 100, 140, 2, stream=20),
        *launched(310, 100, 302, 3, stream=20),
        *launched(305, 100, 302, 4, stream=7),
    )
    assert facts.gpu.busy.total == (300 - 100 + 410 - 305) * 1000
    assert sum(causes_ns(facts).values()) == 5_000


# Properties of every trace.

times = st.integers(0, 400)
lengths = st.integers(0, 120)
THREADS = st.sampled_from([MAIN, AUTOGRAD])
HOST_NAMES = st.sampled_from(
    [
        ("user_annotation", LOADER),
        ("user_annotation", "Optimizer.step#Adam.step"),
        ("cpu_op", "aten::item"),
        ("cpu_op", "aten::mm"),
        ("cpu_op", "autograd::engine::evaluate_function: MmBackward0"),
        ("python_function", "train.py(3): step"),
        ("python_function", "logging/__init__.py(1): info"),
        ("python_function", "<built-in function collect>"),
        ("cuda_runtime", "cudaStreamSynchronize"),
        ("cuda_runtime", "cudaMalloc"),
        ("cuda_runtime", "cudaLaunchKernel"),
    ]
)
host_events = st.builds(
    lambda named, start, duration, tid: span(*named, start * 100, duration * 100, tid),
    HOST_NAMES, times, lengths, THREADS,
)  # fmt: skip
gpu_events = st.tuples(
    st.sampled_from(["gemm", "ncclDevKernel_AllReduce", "Memcpy HtoD (Pageable -> Device)", "Memset"]),
    times, lengths, times, lengths, THREADS, st.sampled_from([7, 20]), st.booleans(),
)  # fmt: skip


def random_trace(host: list[Json], work: list[Any], steps: int) -> Facts:
    """Events anywhere, with any overlap, including launches after their kernels."""
    events = [annotation(f"ProfilerStep#{i}", 5_000 + 9_000 * i, 8_500) for i in range(steps)]
    for correlation, (name, start, duration, launch, call, tid, stream, has_launch) in enumerate(work, 1):
        category = {"Memc": "gpu_memcpy", "Mems": "gpu_memset"}.get(name[:4], "kernel")
        place = {"device": 0, "stream": stream, "correlation": correlation}
        events.append(span(category, name, start * 100, duration * 100, stream, **place))
        if has_launch:
            events.append(runtime("cudaLaunchKernel", launch * 100, call * 10, correlation, tid))
    return Facts(read([*events, *host]))


@settings(max_examples=120)
@given(st.lists(host_events, max_size=14), st.lists(gpu_events, min_size=1, max_size=10), st.integers(0, 3))
def test_every_nanosecond_has_one_owner(host: list[Json], work: list[Any], steps: int) -> None:
    facts = random_trace(host, work, steps)
    gaps, idle, gpu = facts.gaps, facts.idle, facts.gpu
    window = facts.steps.window_ns
    assume(window > 1)  # events without duration
    assert (idle.amount >= 0).all()
    assert (idle.amount.sum(axis=1) == gaps.end - gaps.start).all()
    assert int((gaps.end - gaps.start).sum()) + gpu.busy.total == window
    assert (gaps.start < gaps.end).all()
    assert ((gaps.start <= gaps.starved_end) & (gaps.starved_end <= gaps.end)).all()
    assert int(idle.by_step.sum()) == int(idle.amount.sum())
    assert (facts.syncs.idle >= 0).all()
    assert (facts.syncs.refill >= 0).all()
    busy = gpu.compute.total + gpu.exposed_communication.total + gpu.exposed_copies.total
    assert busy == gpu.busy.total


@settings(max_examples=60)
@given(st.lists(host_events, min_size=1, max_size=14), st.lists(gpu_events, max_size=6), st.integers(0, 3))
def test_the_breakdown_sums_to_the_mean_step(host: list[Json], work: list[Any], steps: int) -> None:
    facts = random_trace(host, work, steps)
    assume(facts.steps.window_ns > 1)
    mean_us = facts.steps.window_ns / facts.steps.count / 1e3
    parts = sections.breakdown(facts)
    assert sum(part.us_per_step for part in parts) == pytest.approx(mean_us, abs=0.001 * max(1, len(parts)))
    assert sum(part.share for part in parts) == pytest.approx(1, abs=1e-5)
    if not facts.has_gpu:
        assert sum(facts.cpu_phases.total_ns(name) for name in facts.cpu_phases.areas) == facts.steps.window_ns
    assert np.isfinite([part.us_per_step for part in parts]).all()


def test_a_cpu_callback_in_a_graph_holds_up_its_kernels() -> None:
    """A host node of PyTorch 2.15. Without it, the trace would not show what held them back."""
    events: list[Json] = []
    for step in range(3):
        begin, on_stream = 1_000 * step, {"device": 0, "stream": 7, "correlation": 5 + step}
        events += [
            runtime("cudaGraphLaunch", begin, 5, 5 + step),
            span("kernel", "before", begin + 100, 100, **on_stream),
            span("graph_host_node", "HostNode: report", begin + 200, 600, **on_stream),
            span("graph_event_node", "EventRecord", begin + 800, 0, **on_stream),
            span("kernel", "after", begin + 800, 100, **on_stream),
        ]
    facts = facts_of(events, steps=3)
    assert facts.idle.typical_ns(GRAPH_CALLBACK) == 600_000
    assert facts.idle.typical_ns(QUEUED) < 100_000
    assert len(facts.gpu.work) == 6, "nodes are no work of the GPU"
    assert facts.parts_of(facts.replayed)[GRAPH_CALLBACK] > 500_000
