"""What each change does to a step with a known answer, and what no change may ever do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.random_runs import Action, actions, run

from traceopt.analyzer.arrays.intervals import Intervals, intersect, union
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import (
    AsyncCopy,
    Change,
    DropSync,
    MergeKernels,
    MoveToStream,
    RemoveHost,
    RemoveLaunches,
    ScaleWork,
)
from traceopt.testing.machine import Machine

STEPS = 5


def steps_of(step: Callable[[Machine], None]) -> Facts:
    machine = Machine()
    for _ in range(STEPS):
        with machine.step():
            step(machine)
    return machine.facts()


def step_us(facts: Facts, *changes: Change) -> float:
    """A step in the middle of the run: the first also waits until the device gets its first work."""
    return float(np.median(facts.replay(changes).per_step_ns)) / 1e3


def during(facts: Facts, name: str) -> Intervals:
    """When operators with a name ran."""
    rows = [facts.trace.names[code] == name for code in facts.slices.name]
    return union(facts.slices.start[rows], facts.slices.end[rows])


def kernels(facts: Facts, *names: str) -> np.ndarray:
    return np.array([facts.trace.names[code] in names for code in facts.gpu.work.name], bool)


def syncs(facts: Facts) -> np.ndarray:
    """Runtime calls that wait."""
    names = [facts.trace.names[code] for code in facts.trace.runtime.name]
    return np.flatnonzero(["Synchronize" in name for name in names])


def loader_then_model(machine: Machine) -> None:
    """500 us of loading, then 200 us of GPU work that the host waits for."""
    machine.work(500, "load")
    for _ in range(2):
        machine.launch(100)
    machine.synchronize()


def test_host_time_goes() -> None:
    facts = steps_of(loader_then_model)
    before = step_us(facts)
    assert step_us(facts, RemoveHost(during(facts, "load"))) == pytest.approx(before - 500, abs=0.01)
    assert step_us(facts, RemoveHost(during(facts, "load"), 0.5)) == pytest.approx(before - 250, abs=0.01)


def test_host_time_that_two_changes_remove_goes_once() -> None:
    facts = steps_of(loader_then_model)
    load = during(facts, "load")
    both = step_us(facts, RemoveHost(load, 0.5), RemoveHost(load))
    assert both == pytest.approx(step_us(facts, RemoveHost(load)), abs=0.01)


def test_what_is_left_of_the_work_is_also_faster() -> None:
    """Half of the work, in two thirds of the time: a third of the time. Two speedups of the same work do not add up."""
    facts = steps_of(loader_then_model)
    load = during(facts, "load")
    half, faster = RemoveHost(load, 0.5), RemoveHost(load, 1 / 3, faster=True)
    before = step_us(facts)
    whole_us = before - step_us(facts, RemoveHost(load))
    assert before - step_us(facts, half, faster) == pytest.approx(whole_us * 2 / 3, abs=0.02)
    assert step_us(facts, faster, faster) == pytest.approx(step_us(facts, faster), abs=0.02)


def test_a_faster_host_cannot_be_faster_than_the_gpu() -> None:
    """Nothing waits: the host runs ahead, and the GPU determines the rate."""

    def step(machine: Machine) -> None:
        machine.work(500, "load")
        for _ in range(4):
            machine.launch(100)

    facts = steps_of(step)
    assert step_us(facts) == pytest.approx(520, abs=1)
    assert step_us(facts, RemoveHost(during(facts, "load"))) == pytest.approx(404, abs=1)


def test_kernels_get_faster_until_the_host_is_the_limit() -> None:
    def step(machine: Machine) -> None:
        for _ in range(4):
            machine.work(20)
            machine.launch(100)

    facts = steps_of(step)
    gemm = kernels(facts, "gemm")
    assert step_us(facts) == pytest.approx(404, abs=1)
    assert step_us(facts, ScaleWork(gemm, 0.5)) == pytest.approx(204, abs=1)
    assert step_us(facts, ScaleWork(gemm, 0.05)) == pytest.approx(100, abs=1)
    assert step_us(facts, ScaleWork(gemm, np.linspace(0.5, 0.5, len(gemm)))) == pytest.approx(204, abs=1)


def test_without_the_sync_host_and_gpu_overlap() -> None:
    """300 us on the GPU, then 200 us on the host: sequential with the sync, overlapping without."""

    def step(machine: Machine) -> None:
        machine.launch(300)
        machine.synchronize(7)
        machine.work(200)

    facts = steps_of(step)
    assert step_us(facts) == pytest.approx(300 + 200 + 5 + 3 + 4, abs=1)
    assert step_us(facts, DropSync(syncs(facts))) == pytest.approx(301, abs=1)


def test_a_copy_made_asynchronous_does_not_hold_the_host() -> None:
    def step(machine: Machine) -> None:
        machine.launch(300)
        machine.copy_to_host(50)
        machine.work(200)

    facts = steps_of(step)
    assert step_us(facts) == pytest.approx(300 + 50 + 200 + 5 + 3 + 1 + 4, abs=1)
    copies = kernels(facts, "Memcpy DtoH (Device -> Pageable)")
    assert step_us(facts, AsyncCopy(copies)) == pytest.approx(352, abs=1)


def test_launches_go_with_their_kernels_and_their_dispatch() -> None:
    def step(machine: Machine) -> None:
        for _ in range(10):
            machine.work(15)
            machine.launch(5, name="fill")
        machine.work(100)
        machine.launch(50)

    facts = steps_of(step)
    fills = kernels(facts, "fill")
    assert step_us(facts) == pytest.approx(305, abs=1)
    assert step_us(facts, RemoveLaunches(fills)) == pytest.approx(105, abs=1)
    assert step_us(facts, RemoveLaunches(fills, dispatch_share=0.5)) == pytest.approx(205, abs=1)


def test_merged_kernels_are_one_launch() -> None:
    def step(machine: Machine) -> None:
        for _ in range(4):
            machine.work(15)
            machine.launch(100, name="pointwise")

    facts = steps_of(step)
    group = np.where(kernels(facts, "pointwise"), np.arange(len(facts.gpu.work)) // 4, -1)
    merged = facts.replay([MergeKernels(group, 0.25)])
    assert step_us(facts, MergeKernels(group, 0.25)) == pytest.approx(101, abs=1)
    assert (merged.rows.duration > 0).sum() == STEPS
    assert step_us(facts, MergeKernels(group, 0.0)) == pytest.approx(20, abs=1)  # one dispatch remains


def test_work_on_a_stream_of_its_own_overlaps_with_what_comes_after() -> None:
    """Communication in the middle of compute: only the next step waits for it."""

    def step(machine: Machine) -> None:
        machine.launch(100)
        machine.launch(80, name="reduce")
        machine.launch(100)
        machine.launch(100)

    facts = steps_of(step)
    assert step_us(facts) == pytest.approx(384, abs=1)
    assert step_us(facts, MoveToStream(kernels(facts, "reduce"))) == pytest.approx(303, abs=1)


def test_moved_work_still_comes_after_what_was_before_it_and_before_the_next_step() -> None:
    def step(machine: Machine) -> None:
        machine.launch(100)
        machine.launch(300, name="reduce")

    facts = steps_of(step)
    assert step_us(facts, MoveToStream(kernels(facts, "reduce"))) == pytest.approx(402, abs=2)


def test_a_cpu_only_step_loses_what_is_removed() -> None:
    def step(machine: Machine) -> None:
        machine.work(300, "load")
        machine.work(200, "train")

    facts = steps_of(step)
    assert step_us(facts) == pytest.approx(500, abs=0.01)
    assert step_us(facts, RemoveHost(during(facts, "load"))) == pytest.approx(200, abs=0.01)


@settings(max_examples=100)
@given(st.lists(actions, min_size=1, max_size=4), st.floats(0, 1), st.integers(0, 2**31))
def test_less_is_never_slower(program: list[list[Action]], share: float, seed: int) -> None:
    """Less host time, shorter kernels, fewer waits: every row comes at the same time or earlier."""
    facts = run(program)
    chance = np.random.default_rng(seed)
    some_work = chance.random(len(facts.gpu.work)) < 0.5
    some_calls = np.flatnonzero(chance.random(len(facts.trace.runtime)) < 0.5)
    times = np.sort(chance.integers(*facts.recorded_steps.host_span, 6))
    area = union(times[::2], times[1::2])
    before = facts.replay().timing
    for change in (
        RemoveHost(area, share),
        ScaleWork(some_work, share),
        DropSync(some_calls),
        AsyncCopy(some_work),
        RemoveLaunches(some_work, share),
    ):
        after = facts.replay([change]).timing
        assert (after.complete <= before.complete).all(), change
        assert (after.clock <= before.clock).all(), change


@settings(max_examples=50)
@given(st.lists(actions, min_size=1, max_size=3))
def test_changes_of_nothing_change_nothing(program: list[list[Action]]) -> None:
    facts = run(program)
    everything, nothing = np.ones(len(facts.gpu.work), bool), np.zeros(len(facts.gpu.work), bool)
    window = facts.recorded_steps.host_window
    changes: Sequence[Change] = (
        ScaleWork(everything, 1.0),
        RemoveHost(window, 0.0),
        RemoveHost(intersect(window, union(np.array([0]), np.array([0])))),
        DropSync(np.empty(0, np.int64)),
        RemoveLaunches(nothing),
        MergeKernels(np.full(len(nothing), -1), 0.5),
        MoveToStream(nothing),
        MergeKernels(np.arange(len(nothing)), 1.0),
    )
    before = facts.replay()
    for change in changes:
        assert (facts.replay([change]).timing.end == before.timing.end).all(), change


@settings(max_examples=50)
@given(st.lists(actions, min_size=1, max_size=3))
def test_a_replay_does_not_alter_the_graph(program: list[list[Action]]) -> None:
    facts = run(program)
    before = facts.replay().timing
    everything = np.ones(len(facts.gpu.work), bool)
    facts.replay([MoveToStream(everything), ScaleWork(everything, 0.1), RemoveLaunches(everything)])
    assert (facts.replay().timing.end == before.end).all()
