"""Device memory over time: of the right device, inside the window, reduced without losing its extremes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.facts import facts_of
from support.traces import GetExample

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.memory.curve import DeviceMemory
from traceopt.testing.events import Json, annotation, kernel, read

CPU, CUDA = 0, 1


def sample(at: float, allocated: int, reserved: int = -1, kind: int = CUDA, device: int = 0, size: int = 8) -> Json:
    args = {"Device Type": kind, "Device Id": device, "Bytes": size, "Addr": 1, "Total Allocated": allocated}
    if reserved >= 0:
        args["Total Reserved"] = reserved
    event = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]"}
    return event | {"pid": 100, "tid": 1, "ts": at, "args": args}


def with_samples(*events: Json, gpu: bool = True) -> Facts:
    """A step of 0.9 ms from 0.1 ms on."""
    work = [kernel("gemm", 100, 100, 1)] if gpu else []
    return facts_of(annotation("ProfilerStep#0", 100, 900), work, *events, steps=0)


def test_peaks_inside_the_window() -> None:
    memory = with_samples(sample(50, 900, 999), sample(200, 300, 500), sample(300, 200, 600), sample(2000, 800)).memory
    assert memory is not None
    assert (memory.peak_allocated, memory.peak_reserved) == (300, 600)


def test_the_device_with_the_highest_peak() -> None:
    memory = with_samples(sample(200, 300, device=0), sample(300, 700, device=1), sample(400, 100, device=0)).memory
    assert memory is not None
    assert (memory.peak_allocated, memory.peak_reserved) == (700, None)


def test_the_hosts_memory_is_another() -> None:
    events = (sample(200, 5_000, kind=CPU), sample(300, 70))
    on_gpu, on_cpu = with_samples(*events).memory, with_samples(*events, gpu=False).memory
    assert on_gpu is not None
    assert on_cpu is not None
    assert (on_gpu.peak_allocated, on_gpu.device_type) == (70, CUDA)
    assert (on_cpu.peak_allocated, on_cpu.device_type) == (5_000, CPU)


def test_not_recorded() -> None:
    assert with_samples().memory is None
    assert with_samples(sample(200, 0), sample(300, 0)).memory is None  # totals of zero do not count
    old = sample(200, 5)
    del old["args"]["Total Allocated"]  # 2021: only sizes
    assert with_samples(old).memory is None


@settings(max_examples=60)
@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=300), st.sampled_from([2, 10, 50]))
def test_thinning_keeps_the_extremes(allocated: list[int], points: int) -> None:
    time = np.arange(len(allocated), dtype=np.int64) * 1000
    column = np.array(allocated, np.int64)
    memory = DeviceMemory(time, column, np.full(len(column), -1), CUDA, np.arange(len(column)))
    kept_time, kept, _ = memory.curve(0, len(allocated) * 1000, points)
    assert kept.max() == column.max()
    assert kept.min() == column.min()
    assert len(kept) <= max(points, 2)
    assert (np.diff(kept_time) > 0).all()
    assert set(zip(kept_time.tolist(), kept.tolist(), strict=True)) <= set(zip(time.tolist(), allocated, strict=True))


def test_the_curve_begins_with_what_was_held_before() -> None:
    time, allocated = np.array([100, 900, 1_500], np.int64), np.array([7, 5, 6], np.int64)
    memory = DeviceMemory(time, allocated, np.full(3, -1), CUDA, np.arange(3))
    kept_time, kept, _ = memory.curve(1_000, 2_000)
    assert (kept_time.tolist(), kept.tolist()) == ([1_000, 1_500], [5, 6])
    assert memory.curve(50, 120)[0].tolist() == [100]


def test_the_first_event_tells_what_was_held_before_it() -> None:
    facts = with_samples(sample(160, 50, size=20), sample(170, 40))
    start = int(facts.steps.host_start[0])
    assert facts.memory is not None
    time, allocated, _ = facts.memory.curve(start, start + 100_000)
    assert ((time - start).tolist(), allocated.tolist()) == ([0, 60_000, 70_000], [30, 50, 40])


def test_a_generated_trace(example: GetExample) -> None:
    full = example("memory_pressure")
    memory = full.facts.memory
    assert memory is not None
    assert memory.peak_allocated is not None
    assert memory.peak_reserved is not None
    assert memory.peak_allocated <= memory.peak_reserved
    capacity = full.facts.device.memory_bytes
    assert capacity is not None
    assert memory.peak_allocated > 0.9 * capacity


def test_the_lowest_of_each_step() -> None:
    marks = [annotation(f"ProfilerStep#{i}", 100 + 100 * i, 100) for i in range(3)]
    samples = [sample(at, allocated) for at, allocated in ((120, 50), (130, 30), (310, 70), (320, 90))]
    facts = Facts(read([*marks, kernel("gemm", 110, 50, 1), *samples]))
    assert facts.memory is not None
    assert facts.memory.lowest_by_step(facts.steps).tolist() == [30, 70]
    assert facts.memory.peak_by_step(facts.steps).tolist() == [50, -1, 90]


def test_an_impossible_first_event_is_limited() -> None:
    """A damaged file: what was held before would not fit into 64 bits."""
    facts = with_samples(sample(160, 2**62, size=-(2**63) + 1))
    assert facts.memory is not None
    assert facts.memory.allocated_before == 2**63 - 1
