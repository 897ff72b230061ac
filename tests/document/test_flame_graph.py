"""The flame graph: equal calls are one node, host time adds up, and GPU time belongs to the line that launched it."""

from __future__ import annotations

from pathlib import Path

import pytest

from traceopt.document.timeline import flame_graph as module
from traceopt.document.timeline.flame_graph import flame_graph
from traceopt.document.timeline.spans import span_table
from traceopt.result.sections.timeline_rows import FlameGraph, FlameNode
from traceopt.testing import A100, Machine, facts_of

LOAD, TORCH = "train.py(12): load", "torch/nn/modules/module.py(1520): _call_impl"


def machine(frames: bool = True) -> Machine:
    machine = Machine(A100)
    for _ in range(5):
        with machine.step():
            if frames:
                with machine.python(LOAD):
                    machine.work(1_000, "aten::stack")
                with machine.python(TORCH):
                    machine.launch(500)
                    machine.launch(500)
                with machine.python(LOAD):
                    machine.work(500, "aten::stack")
            machine.launch(200)
            machine.synchronize()
    return machine


@pytest.fixture(scope="module")
def graph() -> FlameGraph:
    graph = flame_graph(facts_of(machine()))
    assert graph is not None
    return graph


def node(graph: FlameGraph, name: str) -> FlameNode:
    (found,) = (one for one in graph.nodes if graph.frames[one.frame] == name)
    return found


def test_equal_calls_are_one_node(graph: FlameGraph) -> None:
    load = node(graph, LOAD)
    assert (load.parent, load.kind, load.total_us, load.self_us) == (-1, "user", 1_500, 0)
    stack = node(graph, "aten::stack")
    assert graph.nodes[stack.parent] == load
    assert (stack.kind, stack.total_us, stack.self_us) == ("operator", 1_500, 1_500)


def test_nodes_have_the_categories_of_the_timeline() -> None:
    found = flame_graph(facts_of(machine()))
    assert found is not None
    kernels = [one.category for one in found.nodes if one.kind == "kernel"]
    assert kernels
    assert set(kernels) == {"compute"}
    syncs = {one.category for one in found.nodes if "Synchronize" in found.frames[one.frame]}
    assert syncs == {"wait"}
    assert {one.category for one in found.nodes if one.kind == "user"} == {""}


@pytest.mark.parametrize("call", ["cudaFree", "hipFree", "cudaMalloc"])
def test_memory_of_the_driver_does_not_look_like_a_launch(call: str) -> None:
    recorded = Machine(A100)
    for _ in range(3):
        with recorded.step(), recorded.python(LOAD):
            recorded.launch(500)
            recorded.call(call, 300)
    found = flame_graph(facts_of(recorded))
    assert found is not None
    assert {one.category for one in found.nodes if call in found.frames[one.frame]} == {"allocator"}


def test_gpu_time_belongs_to_the_frame_that_launched_it(graph: FlameGraph) -> None:
    assert node(graph, TORCH).gpu_us == 1_000
    assert node(graph, TORCH).kind == "library"
    assert node(graph, LOAD).gpu_us == 0
    assert graph.gpu_us == 1_200
    assert graph.other_gpu_us == 0
    assert graph.backward_gpu_us == 0
    kernels = [one for one in graph.nodes if one.kind == "kernel"]
    assert sum(one.gpu_us for one in kernels) == 1_200
    assert all(one.total_us == 0 for one in kernels)


def test_host_time_adds_up(graph: FlameGraph) -> None:
    for index, one in enumerate(graph.nodes):
        children = [child for child in graph.nodes if child.parent == index]
        assert one.parent < index
        assert one.total_us == pytest.approx(one.self_us + sum(child.total_us for child in children))
    assert sum(one.total_us for one in graph.nodes if one.parent < 0) <= graph.duration_us


def test_frames_are_shown_without_the_folders_of_the_machine() -> None:
    trace = Machine(A100)
    for _ in range(5):
        with trace.step(), trace.python("/home/ann/train.py(3): main"):
            with trace.python(f"{Path(__file__).parents[2]}/capture/hooks.py(9): fetch"):
                trace.work(1_000, "aten::stack")
            trace.launch(200)
    facts = facts_of(trace)
    graph = flame_graph(facts)
    assert graph is not None
    shown = {"~/train.py(3): main", "traceopt/capture/hooks.py(9): fetch"}
    assert shown <= set(graph.frames)
    assert node(graph, "traceopt/capture/hooks.py(9): fetch").kind == "library"
    assert shown <= set(span_table(facts).names)
    assert not [name for name in [*graph.frames, *span_table(facts).names] if name.startswith("/")]


def test_backward_work_belongs_to_the_line_of_its_forward_operator() -> None:
    trace = Machine(A100)
    for number in range(5):
        with trace.step():
            with trace.python(LOAD):
                trace.work(100, "aten::linear", **{"Sequence number": number})
            start, launched = trace.now, len(trace.events)
            trace.launch(700)
            for event in trace.events[launched:]:
                if event["cat"] in ("cuda_runtime", "cpu_op"):
                    event["tid"] = 99
            name = "autograd::engine::evaluate_function: AddmmBackward0"
            trace.work(200, name, tid=99, **{"Sequence number": number, "Fwd thread id": 1})
            trace.events[-1]["ts"], trace.events[-1]["dur"] = start - 1, trace.now - start + 1
            trace.synchronize()
    graph = flame_graph(facts_of(trace))
    assert graph is not None
    assert node(graph, LOAD).gpu_us == 700
    assert graph.other_gpu_us == 0
    assert graph.backward_gpu_us == 700


def test_absent_without_frames() -> None:
    assert flame_graph(facts_of(machine(frames=False))) is None


def test_the_largest_nodes_are_kept_with_their_callers(graph: FlameGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NODES", 3)
    small = flame_graph(facts_of(machine()))
    assert small is not None
    assert len(small.nodes) == 3
    assert small.left_out == len(graph.nodes) + graph.left_out - 3
    assert all(one.parent < index for index, one in enumerate(small.nodes))


def test_a_frame_around_the_training_counts_within_the_step() -> None:
    trace = machine()
    event = {"ph": "X", "cat": "python_function", "name": "train.py(1): main", "pid": 1, "tid": 1}
    trace.events.append(event | {"ts": 0.0, "dur": trace.now})
    facts = facts_of(trace)
    graph = flame_graph(facts)
    assert graph is not None
    if "train.py(1): main" in graph.frames:
        assert node(graph, "train.py(1): main").total_us <= graph.duration_us


def test_deep_recursion_is_bounded() -> None:
    trace = machine()
    start = trace.events[0]["ts"]
    for depth in range(1_000):
        event = {"ph": "X", "cat": "python_function", "name": f"deep.py({depth}): call", "pid": 1, "tid": 1}
        trace.events.append(event | {"ts": start, "dur": trace.now - depth * 0.1})
    graph = flame_graph(facts_of(trace))
    assert graph is not None
    assert len(graph.nodes) <= module.MOST_NODES
