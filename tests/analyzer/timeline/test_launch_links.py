"""GPU work is linked to the exact call that launched it and to the operator around that call."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.timeline.call_tree import build_slices
from traceopt.analyzer.timeline.launch_links import launch_times, link
from traceopt.testing.events import Json, annotation, driver, kernel, op, read, runtime


def links(events: list[Json]) -> dict[str, tuple[str, str]]:
    """For each piece of GPU work, the names of its launch and its operator."""
    trace = read(events)
    slices = build_slices(trace)
    found = link(trace, slices)
    out = {}
    for row, code in enumerate(trace.gpu.name):
        launch, operator = int(found.launch[row]), int(found.op[row])
        if launch >= 0:
            assert slices.name[found.launch_slice[row]] == trace.runtime.name[launch]
        if operator >= 0:
            assert slices.name[found.op_slice[row]] == trace.ops.name[operator]
        assert (launch < 0) == (found.launch_slice[row] < 0)
        assert (operator < 0) == (found.op_slice[row] < 0)
        out[trace.names[code]] = (
            trace.names[trace.runtime.name[launch]] if launch >= 0 else "",
            trace.names[trace.ops.name[operator]] if operator >= 0 else "",
        )
    return out


def test_the_innermost_operator_around_the_launch() -> None:
    assert links(
        [
            annotation("ProfilerStep#1", 0, 100),
            op("aten::linear", 1, 50),
            op("aten::addmm", 2, 20),
            runtime("cudaLaunchKernel", 5, 3, 7),
            runtime("cudaLaunchKernel", 30, 3, 8),
            runtime("cudaLaunchKernel", 60, 3, 9),
            kernel("in addmm", 70, 5, 7),
            kernel("in linear", 75, 5, 8),
            kernel("in no operator", 80, 5, 9),
        ]
    ) == {
        "in addmm": ("cudaLaunchKernel", "aten::addmm"),
        "in linear": ("cudaLaunchKernel", "aten::linear"),
        "in no operator": ("cudaLaunchKernel", ""),
    }


def renamed(*events: Json) -> list[Json]:
    """The events with an "External id" in place of a correlation id."""
    for event in events:
        event["args"]["External id"] = event["args"].pop("correlation")
    return list(events)


def arrow(number: int, event: Json, ph: str) -> Json:
    place = {key: event[key] for key in ("pid", "tid", "ts")}
    return place | {"ph": ph, "id": number, "cat": "ac2g", "name": "ac2g"}


def test_external_ids_link_in_a_file_without_correlation_ids() -> None:
    """As ROCm's older profiler (roctracer) writes them."""
    events = [op("aten::mm", 0, 50), *renamed(runtime("hipLaunchKernel", 5, 3, 7), kernel("k", 9, 1, 7))]
    assert links(events) == {"k": ("hipLaunchKernel", "aten::mm")}
    events += [runtime("hipLaunchKernel", 60, 3, 8), kernel("another", 70, 5, 8)]  # the same file has correlation ids
    assert links(events) == {"k": ("", ""), "another": ("hipLaunchKernel", "")}


def test_launches_that_share_the_external_id_of_their_operator() -> None:
    events = renamed(
        runtime("cudaMalloc", 4, 1, 7),
        runtime("cudaLaunchKernel", 5, 3, 7),
        driver("cuLaunchKernel", 6, 1, 7),
        runtime("cudaGraphLaunch", 20, 3, 7),
        runtime("cudaDeviceSynchronize", 30, 3, 8),
        kernel("first", 9, 1, 7),
        kernel("in the graph", 30, 1, 7),
        kernel("also in the graph", 31, 1, 7),
        kernel("earlier", 1, 1, 5),
    )
    assert links(events) == {
        "first": ("cudaLaunchKernel", ""),
        "in the graph": ("cudaGraphLaunch", ""),
        "also in the graph": ("cudaGraphLaunch", ""),
        "earlier": ("", ""),
    }


def test_arrows_link_in_a_file_without_ids() -> None:
    calls = [runtime("cudaLaunchKernel", 5, 3, 0), driver("cuLaunchKernel", 6, 1, 0), runtime("cudaFree", 20, 1, 0)]
    work = [kernel("k", 9, 1, 0), kernel("right after it", 10, 1, 0), kernel("other stream", 9, 1, 0, stream=8)]
    for event in (*calls, *work):
        del event["args"]["correlation"]
    arrows = [arrow(40, calls[0], "s"), arrow(40, work[1], "f"), arrow(41, calls[2], "f"), arrow(42, work[2], "s")]
    nothing = ("", "")
    linked = {"k": nothing, "right after it": ("cudaLaunchKernel", ""), "other stream": nothing}
    assert links([*calls, *work, *arrows]) == linked
    assert links([*calls, *work]) == dict.fromkeys(linked, nothing)


def test_external_ids_link_where_arrows_begin_at_the_work() -> None:
    events = renamed(runtime("cudaLaunchKernel", 5, 3, 7), kernel("k", 9, 1, 7))
    events += [arrow(7, events[1], "s"), arrow(7, events[1], "f")]
    assert links(events) == {"k": ("cudaLaunchKernel", "")}


def test_an_operator_of_another_thread_is_not_around_the_launch() -> None:
    events = [op("aten::mm", 0, 50, tid=2), runtime("cudaLaunchKernel", 5, 3, 7), kernel("k", 9, 1, 7)]
    assert links(events) == {"k": ("cudaLaunchKernel", "")}


def test_one_graph_launch_owns_many_kernels() -> None:
    events = [op("graph.replay", 0, 50), runtime("cudaGraphLaunch", 5, 3, 7)]
    found = links(events + [kernel(f"k{i}", 10 + i, 1, 7) for i in range(100)])
    assert len(found) == 100
    assert set(found.values()) == {("cudaGraphLaunch", "graph.replay")}


def test_of_a_driver_call_in_a_runtime_call_the_outer_is_the_launch() -> None:
    both = [runtime("cudaLaunchKernel", 5, 3, 7), driver("cuLaunchKernel", 5, 2, 7), kernel("k", 10, 1, 7)]
    assert links(both) == links(both[::-1]) == {"k": ("cudaLaunchKernel", "")}
    assert links(both[1:]) == {"k": ("cuLaunchKernel", "")}  # Triton launches through the driver


def test_work_without_a_launch_in_the_file() -> None:
    events = [op("aten::mm", 0, 50), runtime("cudaLaunchKernel", 5, 3, 7)]
    assert links([*events, kernel("earlier", 1, 1, 6), kernel("later", 2, 1, 8)]) == {
        "earlier": ("", ""),
        "later": ("", ""),
    }


def test_ids_that_are_none_link_nothing() -> None:
    """Correlation 0 and a missing one mean "unknown"."""
    calls = [runtime("cudaMalloc", 0, 1, 0), runtime("cudaFree", 2, 1, -1)]
    nameless = {"ph": "X", "cat": "kernel", "name": "none", "pid": 0, "tid": 7, "ts": 5, "dur": 1}
    assert links([*calls, kernel("zero", 1, 1, 0), nameless]) == {"zero": ("", ""), "none": ("", "")}


def test_gpu_work_alone() -> None:
    assert links([kernel("k", 0, 1, 7)]) == {"k": ("", "")}
    assert links([op("aten::mm", 0, 1)]) == {}


def test_large_ids_and_ids_out_of_order() -> None:
    ids = [2**31 + 5, 3, 2**40, 1]
    events = [runtime(f"call {i}", 10 * n, 5, i) for n, i in enumerate(ids)]
    events += [kernel(f"kernel {i}", 100 + n, 1, i) for n, i in enumerate(reversed(ids))]
    assert links(events) == {f"kernel {i}": (f"call {i}", "") for i in ids}


def test_without_any_launch_all_work_counts_as_launched_when_it_began() -> None:
    """Otherwise all of it would have been launched before the file begins."""
    trace = read([runtime("cudaDeviceSynchronize", 0, 50, 9), kernel("k", 5, 10, 1), kernel("k", 20, 10, 2)])
    times = launch_times(trace.gpu, np.full(2, -1, np.int32), trace.runtime)
    assert times.tolist() == trace.gpu.start.tolist()
