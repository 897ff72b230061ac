"""Kernels of replayed CUDA graphs get the operators and lines of their capture, or none if it is not clear which.

Built from the documentation and the source of Kineto and PyTorch: no recorded trace has a capture and its replays.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.facts import facts_of

from traceopt.analyzer.companions.companions import Companions
from traceopt.analyzer.companions.graph_stacks import read_graph_stacks
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.analyzer.tables.compilation import Compilation, KernelSource
from traceopt.api import analyze
from traceopt.document.sections import graph_shares
from traceopt.document.tables import tables
from traceopt.document.tables.module_times import module_times
from traceopt.document.timeline.flame_graph import flame_graph
from traceopt.document.timeline.spans import span_table
from traceopt.errors import InputError
from traceopt.result.finding import Location
from traceopt.rules import place_of_work
from traceopt.rules.savings.work.precision import kernel_evidence
from traceopt.testing.events import document

Events = list[dict[str, Any]]
FORWARD = (("aten::addmm", "gemm"), ("aten::relu", "relu_kernel"))
LAUNCHES = {"kernel": "cudaLaunchKernel", "gpu_memcpy": "cudaMemcpyAsync"}


def event(cat: str, name: str, ts: float, dur: float, tid: int | str = 1, /, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def capture(start: float, nodes: Sequence[tuple[str, str]] = FORWARD, kind: str = "kernel") -> Events:
    """A capture of one launch for each node, in a function of the user."""
    end = start + 10 * len(nodes) + 20
    events = [
        event("python_function", "train.py(20): record", start - 1, end - start + 2, **{"Python id": 1}),
        event("cuda_runtime", "cudaStreamBeginCapture", start, 1, correlation=int(start)),
        event("cuda_runtime", "cudaStreamEndCapture", end - 1, 1, correlation=int(start) + 1),
    ]
    for index, (op, _) in enumerate(nodes):
        at = start + 5 + 10 * index
        events.append(event("cpu_op", op, at, 5))
        events.append(event("cuda_runtime", LAUNCHES[kind], at + 1, 2, correlation=int(start) + 2 + index))
    return events


def replay(step: int, nodes: Sequence[tuple[str, str]] = FORWARD, **extra: Any) -> Events:
    """A step that replays the graph: its kernels run on stream 7 in the order of the nodes."""
    start, correlation = 10_000.0 + 1_000 * step, 100_000 + step
    events = [
        event("user_annotation", f"ProfilerStep#{step}", start, 900),
        event("cuda_runtime", "cudaGraphLaunch", start + 10, 5, correlation=correlation),
    ]
    for index, (_, kernel) in enumerate(nodes):
        args = {"device": 0, "stream": 7, "correlation": correlation} | {k: v[index] for k, v in extra.items()}
        args = {name.replace("_", " ") if name.startswith("graph") else name: value for name, value in args.items()}
        events.append(event("kernel", kernel, start + 100 + 100 * index, 50, args["stream"], **args))
    return events


def facts_without_steps(*parts: Events) -> Facts:
    return facts_of(*parts, steps=0)


def table(facts: Facts) -> dict[str, tuple[str | None, str | None, str | None]]:
    return {
        row.name: (row.op, str(row.location) if row.location else None, row.via_graph) for row in tables.kernels(facts)
    }


def test_operators_and_lines_come_from_the_capture() -> None:
    facts = facts_without_steps(capture(1_000), *(replay(step) for step in range(3)))
    assert table(facts) == {
        "gemm": ("aten::addmm", "train.py:20", "capture"),
        "relu_kernel": ("aten::relu", "train.py:20", "capture"),
    }
    assert graph_shares(facts) == (1.0, 1.0)


def test_replayed_kernels_count_for_the_modules_of_their_capture() -> None:
    """No step calls a module: a replay only launches their kernels."""
    modules = [
        event("python_function", "nn.Module: Net_0", 1_002, 35, **{"Python id": 2, "Python parent id": 1}),
        event("python_function", "nn.Module: Linear_0", 1_003, 9, **{"Python id": 3, "Python parent id": 2}),
        event("python_function", "nn.Module: ReLU_0", 1_014, 9, **{"Python id": 4, "Python parent id": 2}),
    ]
    facts = facts_without_steps(capture(1_000), modules, *(replay(step) for step in range(3)))
    times = module_times(facts)
    assert times is not None
    rows = [(row.name, row.parent, row.calls_per_step, row.forward_us_per_step) for row in times.tree()]
    assert rows == [("Net_0", -1, 0, 100), ("Linear_0", 0, 0, 50), ("ReLU_0", 0, 0, 50)]
    unknown = module_times(facts_without_steps(modules, *(replay(step) for step in range(3))))
    assert unknown is None or not unknown.tree()


def test_without_the_capture_only_the_replay_is_known() -> None:
    facts = facts_without_steps(*(replay(step) for step in range(3)))
    assert {via for _, _, via in table(facts).values()} == {"replay"}
    assert graph_shares(facts) == (1.0, 0.0)


def test_nodes_are_in_the_order_of_their_ids() -> None:
    """On several streams, the order of the capture is not the order of the times."""
    swapped = FORWARD[::-1]
    in_order = [replay(step, swapped, stream=[7, 8], graph_node_id=[12, 11]) for step in range(3)]
    assert table(facts_without_steps(capture(1_000), *in_order))["gemm"][0] == "aten::addmm"
    unknown = [replay(step, swapped, stream=[7, 8]) for step in range(3)]
    assert table(facts_without_steps(capture(1_000), *unknown))["gemm"][2] == "replay"


def test_graphs_that_cannot_be_told_apart_have_no_operators() -> None:
    """Two captures of as many kernels, with other operators, or two graphs and one capture."""
    other = (("aten::mul", "mul_kernel"), ("aten::add", "add_kernel"))
    replays = [replay(step) for step in range(3)]
    assert table(facts_without_steps(capture(1_000), capture(2_000, other), *replays))["gemm"][2] == "replay"
    assert table(facts_without_steps(capture(1_000), capture(2_000), *replays))["gemm"][2] == "capture", (
        "the same operators twice"
    )
    assert table(facts_without_steps(capture(1_000), *replays, replay(3, other)))["gemm"][2] == "replay"


def test_a_capture_of_other_work_is_not_that_of_the_graph() -> None:
    replays = [replay(step) for step in range(3)]
    assert table(facts_without_steps(capture(1_000, FORWARD[:1]), *replays))["gemm"][2] == "replay"
    assert table(facts_without_steps(capture(1_000, kind="gpu_memcpy"), *replays))["gemm"][2] == "replay"


def test_annotations_of_pytorch_name_the_kernels() -> None:
    notes = {"annotation": ["attention", 5], "graph_node_id": [1, 2]}
    named = {"name": ["mlp", "mlp"], "graph_node_id": [1, 2]}
    assert table(facts_without_steps(*(replay(step, **notes) for step in range(3))))["gemm"] == (
        "attention",
        None,
        "annotation",
    )
    assert table(facts_without_steps(*(replay(step, **named) for step in range(3))))["gemm"] == (
        "mlp",
        None,
        "annotation",
    )


def test_a_log_of_torch_compile_knows_inductors_kernels() -> None:
    source = KernelSource("aten.relu, aten.add", Location("model.py", 7, "forward"))
    log = Compilation("log", (), (), {}, kernels={"relu_kernel": source})
    trace = facts_without_steps(*(replay(step) for step in range(3))).trace
    facts = Facts(trace, companions=Companions(compile_log=log))
    assert table(facts) == {
        "gemm": (None, None, "replay"),
        "relu_kernel": ("aten.relu, aten.add", "model.py:7", "compile_log"),
    }
    assert graph_shares(facts) == (1.0, 0.5)


@pytest.mark.parametrize("graph_bits", [0, 5 << 32], ids=["Cuspy", "Kineto"])
def test_launch_stacks_name_the_line_of_each_node(tmp_path: Path, graph_bits: int) -> None:
    """PyTorch dumps them beside the trace (`dump_kernel_py_stacks`)."""
    numbers = {"graph_id": [5, 5], "graph_node_id": [graph_bits + 1, graph_bits + 2]}
    (tmp_path / "trace.json").write_bytes(document([*(e for step in range(3) for e in with_frames(step, **numbers))]))
    gemm = (
        "/venv/site-packages/torch/nn/functional.py:9:linear\n/home/me/model.py:12:forward\n/home/me/train.py:40:train"
    )
    stacks = {f"{5 << 32 | 1}": gemm, f"{5 << 32 | 2}": "no frame", f"{6 << 32 | 2}": "/home/me/other.py:1:f", "x": ""}
    (tmp_path / "stacks.json.gz").write_bytes(gzip.compress(json.dumps(stacks).encode()))
    result = analyze(str(tmp_path), debug=True)
    rows = {row.name: row for row in result.kernels}
    assert (rows["gemm"].op, rows["gemm"].via_graph) == (None, "launch_stack")
    assert str(rows["gemm"].location).endswith("model.py:12")
    assert (rows["relu_kernel"].via_graph, str(rows["relu_kernel"].location)) == ("replay", "train.py:40")
    assert result.timeline.table is not None
    assert {str(place).rpartition("/")[2] for place in result.timeline.table.places} == {"model.py:12", "train.py:40"}


def test_unreadable_launch_stacks_are_a_warning_beside_others(tmp_path: Path) -> None:
    """Of two files that disagree on a node, neither counts."""
    texts = [
        b'{"4294967297": "a.py:1:f", "4294967298": "a.py:2:f"}',
        b'{"4294967297": "b.py:1:f"}',
        b'{"4294967297": 5}',
    ]
    files = []
    for number, text in enumerate(texts):
        (file := tmp_path / f"{number}.json").write_bytes(text)
        files.append(TraceSource(str(file), None, file.name))
    warnings: list[str] = []
    assert read_graph_stacks(files, warnings) == {4294967298: Location("a.py", 2, "f")}
    assert [warning.partition(":")[0] for warning in warnings] == [
        "2.json cannot be read as launch stacks of CUDA graphs"
    ]
    with pytest.raises(InputError, match="cannot be read as launch stacks"):
        read_graph_stacks(files[2:], [])


def test_kernels_outside_of_graphs_are_as_before() -> None:
    own = [
        event("user_annotation", "ProfilerStep#0", 10_000, 900),
        event("cpu_op", "aten::mm", 10_010, 20),
        event("cuda_runtime", "cudaLaunchKernel", 10_015, 5, correlation=7),
        event("kernel", "gemm", 10_100, 50, 7, device=0, stream=7, correlation=7, name="not a graph"),
    ]
    facts = facts_without_steps(own)
    assert table(facts)["gemm"] == ("aten::mm", None, None)
    assert graph_shares(facts) == (0.0, None)


def with_frames(step: int, **extra: Any) -> Events:
    """A replay inside a function of the user, with the times of its frames."""
    return [*replay(step, **extra), event("python_function", "train.py(40): train", 10_000.0 + 1_000 * step + 5, 800)]


def test_rules_and_the_timeline_name_the_line_and_operator_of_the_capture() -> None:
    facts = facts_without_steps(capture(1_000), *(with_frames(step) for step in range(3)))
    evidence = {row.what: (row.detail, str(row.location)) for row in kernel_evidence(facts, facts.gpu.in_window > 0)}
    assert evidence == {"gemm": ("aten::addmm", "train.py:20"), "relu_kernel": ("aten::relu", "train.py:20")}
    assert str(place_of_work(facts, 0)) == "train.py:20"
    unknown = facts_without_steps(*(with_frames(step) for step in range(3)))
    assert str(place_of_work(unknown, 0)) == "train.py:40", "without the capture, the line that replays it"
    table = span_table(facts)
    assert table is not None
    assert "aten::addmm" in table.names, "the timeline names the operator, too"


def test_the_flame_graph_continues_below_the_launch_of_a_graph() -> None:
    module = event("python_function", "nn.Module: Linear_0", 1_004, 12, **{"Python id": 2})
    graph = flame_graph(facts_without_steps([*capture(1_000), module], *(with_frames(step) for step in range(3))))
    assert graph is not None

    def path(frame: str) -> list[str]:
        (place,) = (index for index, node in enumerate(graph.nodes) if graph.frames[node.frame] == frame)
        names = []
        while place >= 0:
            names.append(graph.frames[graph.nodes[place].frame])
            place = graph.nodes[place].parent
        return names[::-1]

    assert path("gemm") == ["train.py(40): train", "cudaGraphLaunch", "nn.Module: Linear_0", "aten::addmm", "gemm"]
    assert path("relu_kernel")[1:] == ["cudaGraphLaunch", "aten::relu", "relu_kernel"]
    launch = next(node for node in graph.nodes if graph.frames[node.frame] == "cudaGraphLaunch")
    assert (launch.total_us, launch.gpu_us) == (5, 100)
