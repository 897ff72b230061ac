"""Busy time is the union of kernels, copies and fills of one device inside the window, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from support.traces import GetExample

from fixtures.scenarios import SCENARIOS
from traceopt.analyzer.arrays.intervals import Intervals
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.document import sections
from traceopt.testing.events import Json, annotation, kernel, read, runtime, span

WINDOW = (0, 1_000_000)
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def work_of(*events: Json, window: tuple[int, int] = WINDOW) -> GpuWork:
    area = Intervals(*(np.array([time]) for time in window))
    return GpuWork(read([annotation("ProfilerStep#0", 0, 1000), *events]), area, area)


def copy(
    start: float, duration: float, category: str = "gpu_memcpy", name: str = "Memcpy DtoD (Device -> Device)"
) -> Json:
    return span(category, name, start, duration, 9, device=0, stream=9, correlation=0, bytes=8)


def test_overlapping_streams_count_once() -> None:
    gpu = work_of(kernel("a", 100, 200, 1, stream=7), kernel("b", 250, 100, 2, stream=20), copy(340, 20))
    assert gpu.busy.total == 260_000
    assert gpu.idle.total == 740_000


def test_what_is_no_work() -> None:
    """Stream waits, device-side copies of annotations, and CPU calls do not make a GPU busy."""
    gpu = work_of(
        kernel("a", 100, 100, 1),
        span("cuda_sync", "Stream Wait Event", 300, 200, 7, device=0, stream=7, correlation=3),
        span("gpu_user_annotation", "ProfilerStep#0", 0, 1000, 7),
        runtime("cudaDeviceSynchronize", 500, 300, 4),
    )
    assert gpu.busy.total == 100_000


def test_parts_are_exclusive() -> None:
    """Communication is exposed if no compute overlaps it, a copy if neither does."""
    gpu = work_of(
        kernel("gemm", 100, 200, 1),  # 100-300
        kernel(ALL_REDUCE, 200, 200, 2, stream=20),  # 200-400, exposed 300-400
        copy(350, 150),  # 350-500, exposed 400-500
        copy(500, 50, "gpu_memset", "Memset (Device)"),  # a fill counts as a copy
    )
    assert gpu.compute.total == 200_000
    assert gpu.exposed_communication.total == 100_000
    assert gpu.exposed_copies.total == 150_000
    assert gpu.busy.total == 450_000


def test_clipped_to_the_window() -> None:
    gpu = work_of(kernel("a", 50, 100, 1), kernel("b", 950, 100, 2), window=(100_000, 1_000_000))
    assert gpu.busy.total == 100_000
    assert gpu.in_window.tolist() == [50_000, 50_000]


def test_work_that_takes_no_whole_microsecond_is_inside() -> None:
    """Files with whole microseconds have kernels of 0: they take no time, but they are launched."""
    gpu = work_of(kernel("a", 100, 0, 1), kernel("b", 100, 2, 2), kernel("c", 2_000, 0, 3), kernel("d", 2_000, 2, 4))
    assert gpu.is_inside.tolist() == [True, True, False, False]
    assert gpu.in_window.tolist() == [0, 2_000, 0, 0]


def test_the_device_with_the_most_work_is_judged() -> None:
    gpu = work_of(kernel("a", 100, 100, 1, device=0), kernel("b", 100, 300, 2, device=1))
    assert gpu.device == 1
    assert gpu.busy.total == 300_000


def test_the_device_of_files_that_name_none_is_the_process_row() -> None:
    events = [{**kernel("a", 100, 100, 1), "args": {}, "pid": 3}, {**kernel("b", 300, 100, 2), "args": {}, "pid": 3}]
    gpu = work_of(*events)
    assert (gpu.device, gpu.busy.total) == (3, 200_000)


def test_no_gpu() -> None:
    gpu = work_of()
    assert gpu.device is None
    assert (gpu.busy.total, gpu.idle.total) == (0, 1_000_000)
    assert len(gpu.kind) == len(gpu.tensor_core) == 0


def test_kinds() -> None:
    gpu = work_of(
        kernel("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_tn", 100, 10, 1),
        kernel("volta_hgemm_128x64_nn", 120, 10, 2),
        kernel(ALL_REDUCE, 140, 10, 3),
        copy(160, 10),
        copy(180, 10, "gpu_memset", "Memset (Device)"),
        kernel("triton_poi_fused_add_0", 200, 10, 4),
    )
    assert [gpu.kind.at(row) for row in range(6)] == ["gemm", "gemm", "collective", "memcpy", "memset", "elementwise"]
    assert gpu.tensor_core.tolist()[:2] == [1, 0]
    assert gpu.fused.tolist() == [False] * 5 + [True]
    assert gpu.is_compute.tolist() == [True, True, False, False, False, True]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_parts_of_a_step_sum_exactly(example: GetExample, scenario: str) -> None:
    """In whole nanoseconds, for the GPU side, the idle side, and the CPU-only phases."""
    facts: Facts = example(scenario).facts
    window = facts.steps.window_ns
    gpu, gaps = facts.gpu, facts.gaps
    if facts.has_gpu:
        busy = gpu.compute.total + gpu.exposed_communication.total + gpu.exposed_copies.total
        assert busy == gpu.busy.total
        assert busy + int(facts.idle.amount.sum()) == window
        assert (facts.idle.amount >= 0).all()
        assert (facts.idle.amount.sum(axis=1) == gaps.end - gaps.start).all()
    else:
        assert sum(area.total for area in facts.cpu_phases.areas.values()) == window
    parts = sections.breakdown(facts)
    mean_us = window / facts.steps.count / 1e3
    assert sum(part.us_per_step for part in parts) == pytest.approx(mean_us, abs=0.001 * len(parts))
    for part in parts:
        assert part.raw_us_per_step is None or part.raw_us_per_step >= part.us_per_step - 0.002
