"""The graph knows what waits for what; re-timed without a change it reproduces the recorded steps."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.random_runs import Action, actions, run
from support.traces import GetExample

from fixtures.scenarios import SCENARIOS
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay import queues
from traceopt.analyzer.replay.graph import HOST
from traceopt.analyzer.replay.retime import retime
from traceopt.testing.events import annotation, kernel, op, python, read, runtime, span
from traceopt.testing.machine import Machine


def awaited(facts: Facts) -> list[tuple[str, str]]:
    """Every wait as (who waits, for which kernel), in the order of the host."""
    graph = facts.replay_graph

    def name(row: int) -> str:
        return facts.trace.names[facts.gpu.work.name[graph.work[row]]] if graph.work[row] >= 0 else "host"

    return [(name(row), name(graph.rows.awaits[row])) for row in np.flatnonzero(graph.rows.awaits >= 0)]


def error_of(facts: Facts) -> float:
    assert facts.replay_error is not None
    return facts.replay_error.share


def assert_repeats(facts: Facts) -> None:
    """Host and device are where they were at every step border, and every kernel starts when it did."""
    graph, steps = facts.replay_graph, facts.recorded_steps
    timing = retime(graph, graph.rows)
    assert np.abs(timing.host - np.append(steps.host_start, steps.host_end[-1])).max() <= 1
    assert np.abs(timing.complete - np.append(steps.start, steps.end[-1])).max() <= 1
    work = graph.work >= 0
    assert np.abs(timing.end[work] - graph.measured_end[work]).max(initial=0) <= 1


@pytest.mark.parametrize("seed", range(30))
def test_every_wait_is_for_what_came_before_whatever_the_file_says(seed: int) -> None:
    """Correlations, times and sync rows that contradict each other."""
    choice = random.Random(seed)  # noqa: S311
    machine = Machine()
    for _ in range(3):
        with machine.step():
            for _ in range(6):
                machine.launch(30, stream=choice.choice((7, 20, 20)))
                machine.call("cudaStreamWaitEvent")
            machine.copy_to_host(20)
            machine.synchronize(choice.choice((7, None)))
    for event in machine.events:
        args = event["args"]
        if "correlation" in args and choice.random() < 0.3:
            args["correlation"] = choice.randrange(60)
        if choice.random() < 0.2:
            event["ts"] += choice.randrange(-300, 300)
    calls = [event for event in machine.events if event["cat"] == "cuda_runtime"]
    for event in choice.sample(calls, 12):
        said = {"stream": 7, "correlation": event["args"]["correlation"]}
        said |= {"wait_on_stream": 20, "wait_on_cuda_event_record_corr_id": choice.randrange(60)}
        machine.events.append(span("cuda_sync", "Stream Wait Event", event["ts"], 5, **said))
    graph = machine.facts().replay_graph
    assert (graph.rows.awaits < np.arange(len(graph.rows))).all()
    retime(graph, graph.rows)


def test_more_streams_than_any_job_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least used streams are treated as one, so that tables of streams by calls stay small."""
    monkeypatch.setattr(queues, "MOST_STREAMS", 4)
    machine = Machine()
    for number in range(40):
        machine.launch(10, stream=7 if number % 2 else number)
    graph = machine.facts().replay_graph
    assert sorted(np.unique(graph.rows.stream)) == [HOST, 0, 1, 2, 3]
    assert np.count_nonzero(graph.rows.stream == 0) == 20


def test_a_fast_gpu_follows_the_host() -> None:
    machine = Machine()
    for _ in range(3):
        with machine.step():
            for _ in range(5):
                machine.work(50)
                machine.launch(10)
    facts = machine.facts()
    assert_repeats(facts)
    assert awaited(facts) == []
    assert facts.replay().per_step_ns.tolist() == [5 * 55_000] * 3, "the second round follows others"


def test_a_slow_gpu_sets_the_pace_of_a_host_that_never_waits() -> None:
    """The marks of the host are close together, but the run proceeds at the rate of the GPU."""
    machine = Machine()
    for _ in range(4):
        with machine.step():
            for _ in range(5):
                machine.work(5)
                machine.launch(100)
    facts = machine.facts()
    assert_repeats(facts)
    assert np.diff(facts.steps.host_start).tolist() == [5 * 10_000] * 3
    assert facts.steps.duration.tolist() == [5 * 101_000 + 12_000, *[5 * 101_000] * 3]  # the first waits for its launch
    assert facts.replay().per_step_ns.tolist() == [5 * 101_000] * 4
    assert facts.step_ns == 5 * 101_000 + 12_000 / 4
    assert facts.replay().step_ns == 5 * 101_000  # once the device has a queue


def test_one_recorded_step_is_replayed_until_host_and_device_keep_pace() -> None:
    machine = Machine()
    with machine.step():
        machine.work(1_000)
        machine.launch(900)
    facts = machine.facts()
    assert facts.replay().step_ns == 1_005_000  # not 1,908 us, from an idle GPU to the end of its work


@pytest.mark.parametrize("stream", [None, 7])
def test_a_sync_waits_for_what_was_launched(stream: int | None) -> None:
    machine = Machine()
    for _ in range(3):
        with machine.step():
            machine.launch(10, name="first")
            machine.launch(500, name="second")
            machine.synchronize(stream)
            machine.work(30)
    facts = machine.facts()
    assert awaited(facts) == [("host", "second")] * 3
    assert_repeats(facts)


def test_a_sync_that_did_not_have_to_wait_would_wait_if_the_host_were_faster() -> None:
    machine = Machine()
    for _ in range(3):
        with machine.step():
            machine.launch(10)
            machine.work(500)
            machine.synchronize(7)
    assert awaited(machine.facts()) == [("host", "gemm")] * 3


def test_a_copy_to_pageable_memory_blocks_and_one_to_pinned_memory_does_not() -> None:
    machine = Machine()
    with machine.step():
        machine.launch(300)
        machine.copy_to_host(20)
        machine.launch(300)
        machine.copy_to_host(20, "Pinned")
        machine.work(100)
    facts = machine.facts()
    assert awaited(facts) == [("host", "Memcpy DtoH (Device -> Pageable)")]
    assert_repeats(facts)


def test_a_slow_copy_whose_call_lasts_into_it_blocks() -> None:
    """From pageable memory the call returns when the last piece is staged, before the end of the copy."""
    copy = span("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 300, 800, 7, device=0, stream=7, correlation=1)
    facts = Facts(
        read([annotation("ProfilerStep#0", 0, 2000), runtime("cudaMemcpyAsync", 100, 900, 1), copy | {"pid": 0}])
    )
    graph = facts.replay_graph
    (wait,) = np.flatnonzero(graph.rows.awaits >= 0)
    assert graph.rows.wake[wait] == -100_000
    assert_repeats(facts)


def test_sync_rows_name_the_event_that_was_awaited() -> None:
    """Without the row, the call would seem to have waited for the longer kernel."""
    events = [
        annotation("ProfilerStep#0", 0, 2000),
        runtime("cudaLaunchKernel", 10, 5, 1),
        kernel("first", 20, 500, 1),
        runtime("cudaEventRecord", 20, 2, 2),
        runtime("cudaLaunchKernel", 30, 5, 3),
        kernel("second", 521, 100, 3),
        runtime("cudaEventSynchronize", 700, 5, 4),
    ]
    row = {"stream": -1, "device": 0, "correlation": 4, "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 2}
    assert awaited(Facts(read([*events, span("cuda_sync", "Event Sync", 700, 5, -1, **row)]))) == [("host", "first")]
    assert awaited(Facts(read(events))) == []  # nothing ended during it, so what it waited for is unknown


def test_an_event_sync_that_blocked_waited_for_what_ended_then() -> None:
    machine = Machine()
    with machine.step():
        machine.launch(200, name="first")
        done = machine.ends[7]
        machine.launch(300, name="second")
        machine.call("cudaEventSynchronize", until=done + 4)
        machine.work(50)
    facts = machine.facts()
    assert awaited(facts) == [("host", "first")]
    assert facts.replay_graph.inferred[facts.replay_graph.rows.awaits >= 0].all()
    assert_repeats(facts)


def test_a_stream_wait_holds_back_the_next_launch() -> None:
    machine = Machine()
    with machine.step():
        machine.launch(300, stream=7, name="compute")
        machine.call("cudaStreamWaitEvent")
        machine.launch(100, stream=20, after=machine.ends[7] + 2, name="communicate")
        machine.call("cudaStreamWaitEvent")
        machine.launch(50, stream=7, after=machine.ends[20] + 2, name="update")
    facts = machine.facts()
    assert awaited(facts) == [("communicate", "compute"), ("update", "communicate")]
    assert_repeats(facts)


def test_what_the_times_contradict_is_no_dependency() -> None:
    machine = Machine()
    with machine.step():
        machine.launch(300, stream=7, name="compute")
        machine.call("cudaStreamWaitEvent")
        machine.launch(100, stream=20, name="prefetch")  # starts at once
    assert awaited(machine.facts()) == []


def test_work_that_no_launch_explains_waited_for_another_stream() -> None:
    """Without a call: it started when the other stream's kernel ended, or when that left room on the device."""
    machine = Machine()
    with machine.step():
        machine.launch(300, stream=7, name="large")
        machine.launch(10, stream=20, after=machine.ends[7] + 1, name="waits")
        machine.launch(300, stream=7, after=machine.ends[20] + 1, name="larger")
        machine.launch(10, stream=20, after=machine.ends[7] - 40, name="squeezed in")
    facts = machine.facts()
    assert ("waits", "large") in awaited(facts)
    assert ("squeezed in", "larger") in awaited(facts)
    assert_repeats(facts)


def test_a_late_start_without_a_reason_is_an_error_of_the_replay() -> None:
    machine = Machine()
    for _ in range(3):
        with machine.step():
            machine.launch(100, after=machine.now + 508)  # half a millisecond late
            machine.synchronize()
            machine.work(1_000 - 508 - 100 - 4)
    facts = machine.facts()
    assert error_of(facts) == pytest.approx(0.5, abs=0.01)
    assert facts.replay().step_ns == pytest.approx(500_000, rel=0.01)


def test_a_full_queue_holds_the_launch_until_the_gpu_takes_the_next() -> None:
    machine = Machine()
    with machine.step():
        for index in range(300):
            machine.launch(1_000, name=f"k{index}")
        machine.call("cudaMemsetAsync", until=machine.ends[7] - 300 * 1_001 + 10_010)
        number = machine._ids
        machine.events.append(
            span("gpu_memset", "Memset", machine.ends[7] + 1, 5, 7, device=0, stream=7, correlation=number) | {"pid": 0}
        )
        machine.work(10)
    facts = machine.facts()
    assert [who for who, _ in awaited(facts)] == ["host"]
    assert_repeats(facts)


def test_a_graph_launch_has_many_kernels_and_takes_its_time() -> None:
    machine = Machine()
    with machine.step():
        number = machine.call("cudaGraphLaunch", 50)
        for index in range(4):
            machine.events.append(kernel(f"node{index}", machine.now + 400 + 10 * index, 9, number))
        machine.work(1_000)
    facts = machine.facts()
    assert (facts.replay_graph.work >= 0).sum() == 4
    assert facts.replay_graph.unexplained.sum() == 0
    assert_repeats(facts)


def test_autograd_takes_over_the_flow_of_control() -> None:
    """The caller is blocked in backward(): what the other thread does delays what the caller does next."""
    machine = Machine()
    for _ in range(3):
        with machine.step():
            machine.work(20)
            machine.launch(5)
            begin = machine.now
            for _ in range(3):
                machine.work(40, tid=2)
                machine.launch(5, tid=2)
            machine.events.append(python("<built-in method run_backward>", begin, machine.now - begin))
            machine.launch(5)
    facts = machine.facts()
    assert_repeats(facts)
    assert facts.replay_graph.rows.host.sum() == facts.recorded_steps.host_window.total


def test_a_thread_that_runs_beside_the_training_thread_blocks_nobody() -> None:
    machine = Machine()
    for _ in range(3):
        with machine.step():
            for _ in range(20):
                machine.work(10)
                machine.events.append(runtime("cudaStreamSynchronize", machine.now - 8, 7, 900, tid=2))
            machine.launch(5)
    facts = machine.facts()
    assert awaited(facts) == []
    assert_repeats(facts)


def test_work_from_before_the_window_happens_when_it_happened() -> None:
    machine = Machine()
    machine.launch(400, name="before")
    with machine.step():
        machine.launch(50, name="after")
        machine.synchronize()
    facts = machine.facts()
    assert facts.replay_graph.fixed == 1
    assert_repeats(facts)


def test_work_without_a_launch_keeps_its_place_on_its_stream() -> None:
    machine = Machine()
    with machine.step():
        machine.launch(100, name="a")
        machine.events.append(kernel("lost", machine.ends[7] + 20, 100, 999))
        machine.ends[7] += 120
        machine.launch(100, name="b")
        machine.synchronize()
    facts = machine.facts()
    assert facts.replay_graph.fixed == 0
    assert_repeats(facts)


def test_work_queued_before_the_first_step_delays_its_completion() -> None:
    machine = Machine()
    machine.launch(3_000, name="earlier")
    machine.now += 20
    for _ in range(4):
        with machine.step():
            machine.launch(500)
            machine.launch(500)
    facts = machine.facts()
    assert facts.replay_graph.fixed == 1
    assert facts.replayed.per_step_ns == pytest.approx(facts.recorded_steps.duration)
    assert facts.replay_graph.unexplained.sum() == 0


def test_without_a_gpu_the_host_is_all_there_is() -> None:
    facts = Facts(read([annotation(f"ProfilerStep#{i}", 100 * i, 100) for i in range(3)] + [op("aten::mm", 10, 50)]))
    assert facts.replay().step_ns == 100_000
    assert error_of(facts) == 0


def test_without_launches_there_is_nothing_to_replay() -> None:
    facts = Facts(read([kernel("gemm", 0, 100, 1), kernel("gemm", 110, 100, 2)]))
    assert facts.replay_error is None
    assert not facts.replay_trusted


@pytest.mark.slow
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_change_gives_generated_steps_back(example: GetExample, scenario: str, fixed: bool) -> None:
    assert error_of(example(scenario, fixed).facts) <= 0.001


@settings(max_examples=150)
@given(st.lists(actions, min_size=1, max_size=4))
def test_no_change_gives_any_run_back(program: list[list[Action]]) -> None:
    assert_repeats(run(program))
    rows = run(program).replay_graph.rows
    assert (rows.awaits < np.arange(len(rows))).all()
    assert (rows.stream[rows.host < 0] == HOST).all()
