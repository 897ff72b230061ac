"""The error of the replay grows if the graph misses waits or lags; it does not count what changes no step."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from fixtures.real_traces import TRACES, expected
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.source_search import find_sources
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.replay import graph as building
from traceopt.analyzer.replay.error import ReplayError, replay_error
from traceopt.analyzer.replay.graph import Graph, Rows
from traceopt.analyzer.replay.queues import Queues
from traceopt.analyzer.replay.retime import step_times
from traceopt.analyzer.replay.waits import HostWaits
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.api import analyze
from traceopt.testing.machine import Machine

LAUNCHES = 20
MATTERS = 0.02  # of the step: waits of the host that are shorter change little


def run(kernel_us: float = 200, wait: bool = True, late_us: float = 0) -> Facts:
    """Steps whose host work varies by a millisecond. `late_us`: a kernel starts later than anything explains."""
    choice = random.Random(5)  # noqa: S311
    machine = Machine()
    for _ in range(8):
        with machine.step():
            machine.work(choice.uniform(1_000, 2_000))
            for launch in range(LAUNCHES):
                machine.launch(kernel_us, after=machine.now + late_us if launch == 1 else 0)
            if wait:
                machine.synchronize()
            machine.work(choice.uniform(100, 300))
    return machine.facts()


def error_of(facts: Facts, graph: Graph | None = None) -> ReplayError:
    error = replay_error(facts.replay_graph if graph is None else graph, facts.recorded_steps, facts.has_gpu)
    assert error is not None
    return error


def with_rows(facts: Facts, rows: Rows) -> ReplayError:
    return error_of(facts, replace(facts.replay_graph, rows=rows))


def without_waiting(facts: Facts) -> ReplayError:
    """Of a graph in which nothing waits for anything else."""
    rows = facts.replay_graph.rows
    return with_rows(facts, replace(rows, awaits=np.full(len(rows), -1)))


def without_finding_waits(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> ReplayError:
    """Of a graph that takes the time of all waits for work of the host."""
    none = np.empty(0, np.int64)

    def no_host_waits(*_: object) -> HostWaits:
        return HostWaits(none, none, none, none > 0, none > 0)

    def no_stream_waits(_trace: object, _calls: object, queues: Queues) -> tuple[I8, Mask]:
        return np.full(len(queues), -1), np.zeros(len(queues), bool)

    with monkeypatch.context() as patch:
        patch.setattr(building, "find_host_waits", no_host_waits)
        patch.setattr(building, "find_stream_waits", no_stream_waits)
        return error_of(Facts(facts.trace))


def with_latencies(facts: Facts, factor: float) -> ReplayError:
    rows = facts.replay_graph.rows
    return with_rows(facts, replace(rows, latency=np.where(rows.latency > 0, rows.latency * factor, rows.latency)))


def test_a_complete_graph_predicts_each_step_from_the_others() -> None:
    facts = run()
    error = error_of(facts)
    assert error.share < 0.001
    assert error.prediction is not None
    assert error.prediction.steps == 8
    assert error.prediction.error_share < 0.001
    assert error.prediction.usual_share > 0.02  # the steps differ
    assert facts.replay_trusted
    assert facts.replay_complete


def test_a_graph_without_waits_predicts_worse_than_the_other_steps() -> None:
    error = without_waiting(run())
    assert error.prediction is not None
    assert error.prediction.error_share > error.prediction.usual_share
    assert error.steps_share > 0.1


def test_waits_taken_for_work_of_the_host_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    error = without_finding_waits(run(), monkeypatch)
    assert error.missed_share < 0.001  # the recorded steps come back all the same
    assert error.blocked_share > 0.3
    assert error.share > 0.3


def test_lags_that_are_too_long_are_seen() -> None:
    facts = run(kernel_us=2)
    assert error_of(facts).share < 0.001
    assert with_latencies(facts, 20).missed_share > 0.01


def test_a_delay_that_nothing_explains_counts_if_the_device_is_the_limit() -> None:
    facts = run(late_us=3_000)
    error = error_of(facts)
    assert error.unexplained_share > 0.2
    assert error.missed_share > 0.2
    assert not facts.replay_trusted


def test_a_delay_that_changes_no_step_does_not_count() -> None:
    facts = run(kernel_us=2, wait=False, late_us=200)
    error = error_of(facts)
    assert error.unexplained_share > 0.05
    assert error.steps_share < 0.01
    assert facts.replay_trusted


def test_with_two_steps_every_unexplained_delay_counts() -> None:
    machine = Machine()
    for _ in range(2):
        with machine.step():
            machine.launch(2, after=machine.now + 300)
            machine.work(2_000)
    error = error_of(machine.facts())
    assert error.prediction is None
    assert error.missed_share < 0.01
    assert error.steps_share == error.unexplained_share > 0.1


def test_a_call_that_waits_for_something_hidden_makes_savings_less_certain() -> None:
    machine = Machine()
    for _ in range(5):
        with machine.step():
            machine.launch(500)
            machine.work(1_000)
            machine.call("cudaDeviceSynchronize", 800)
    facts = machine.facts()
    assert error_of(facts).blocked_share == pytest.approx(800 / 1_805, abs=0.01)
    assert facts.replay_trusted
    assert not facts.replay_complete


def test_a_call_that_frees_memory_can_take_long_by_itself() -> None:
    machine = Machine()
    for _ in range(5):
        with machine.step():
            machine.launch(500)
            machine.work(1_000)
            machine.call("cudaFree", 800)
    assert error_of(machine.facts()).blocked_share == 0


def test_then_the_confidence_falls(tmp_path: Path) -> None:
    def confidence(slow_us: float) -> str:
        machine = Machine()
        for _ in range(5):
            with machine.step():
                with machine.annotate("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
                    machine.work(3_000, "load")
                machine.launch(500)
                machine.synchronize()
                machine.call("cudaDeviceSynchronize", slow_us)
        path = tmp_path / f"{slow_us}.json"
        path.write_bytes(machine.to_bytes())
        (found,) = analyze(str(path), select=["DL001"]).findings
        return found.confidence

    assert (confidence(2), confidence(800)) == ("high", "medium")


def test_only_steps_that_launch_the_same_work_are_compared() -> None:
    machine = Machine()
    for step in range(9):
        with machine.step():
            for _ in range(10 if step % 3 else 11):
                machine.launch(50)
            machine.synchronize()
    prediction = error_of(machine.facts()).prediction
    assert prediction is not None
    assert prediction.steps == 6


WITH_GPU_WORK = [file for file, truth in expected().items() if truth["figures"].get("gpu_busy_us")]


@pytest.mark.real_traces
@pytest.mark.parametrize("file", WITH_GPU_WORK)
def test_without_its_waits_the_error_of_a_real_trace_grows(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = find_sources([str(TRACES / file)]).sources
    with source.open() as stream:
        facts = Facts(read_trace(stream, source.label))
    graph = facts.replay_graph
    nothing_waits = replace(graph.rows, awaits=np.full(len(graph.rows), -1))
    waited = step_times(graph, graph.rows).host[-1] - step_times(graph, nothing_waits).host[-1]
    waited_share = float(waited) / facts.recorded_steps.window_ns
    assert without_waiting(facts).share >= error_of(facts).share - 0.001
    if waited_share > MATTERS:
        assert without_finding_waits(facts, monkeypatch).share > error_of(facts).share + waited_share / 2
