"""Any file gives exact tables or one clear error, never anything else."""

from __future__ import annotations

import gzip
import io
import json
import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_trace import META, SMALL, TABLES, names, well_formed

from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.tables.schema import KERNEL, MEMCPY, MEMSET
from traceopt.testing.events import PID, Json, document, kernel, op, python, read, span


def test_a_small_trace() -> None:
    trace = read(document(SMALL + META, distributedInfo={"rank": 2, "world_size": 8}))
    well_formed(trace)
    meta = trace.meta
    assert (meta.rank, meta.world_size, meta.event_count, meta.path) == (2, 8, 8, "trace.json")
    assert (meta.lost_events, meta.repaired_events, meta.damage) == (0, 0, None)
    assert meta.categories == {"user_annotation": 1, "python_function": 1, "cpu_op": 2, "cuda_runtime": 1, "kernel": 1}
    assert meta.byte_count == len(document(SMALL + META, distributedInfo={"rank": 2, "world_size": 8}))
    assert names(trace, "ops") == ["aten::mm", "aten::add"]
    assert trace.ops.start.tolist() == [2000, 30000]
    assert trace.ops.duration.tolist() == [10000, 2500]
    assert [json.loads(trace.texts[trace.ops.dims[0]]), trace.ops.dims[1]] == [[[2, 3], [3, 4]], -1]
    assert [json.loads(trace.texts[trace.ops.types[0]]), trace.ops.types[1]] == [["float", "float"], -1]
    assert trace.runtime.correlation.tolist() == trace.gpu.correlation.tolist() == [7]
    assert trace.gpu.grid.tolist() == [[2, 1, 1]]
    assert trace.gpu.block.tolist() == [[128, 1, 1]]
    assert (trace.gpu.device[0], trace.gpu.stream[0], trace.gpu.kind[0]) == (0, 7, KERNEL)
    (thread,) = trace.threads
    assert (thread.pid, thread.tid, thread.name) == (PID, 1, "main")
    assert trace.duration_ns == 100_000


def test_progress_counts_the_text() -> None:
    told: list[int] = []
    text = document([op("aten::mm", i, 1, padding="x" * 1000) for i in range(3000)])
    trace = read_trace(io.BytesIO(gzip.compress(text)), "t", progress=told.append)
    assert told == sorted(told)
    assert len(told) >= 3
    assert trace.meta.byte_count == len(text) >= told[-1]


# --- Categories -------------------------------------------------------------------------------------------------------


def test_the_categories_of_2021() -> None:
    trace = read(
        [
            span("Operator", "ProfilerStep#1", 0, 50),
            span("Operator", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 9),
            span("Operator", "Optimizer.step#SGD.step", 30, 5),
            span("Operator", "aten::conv2d", 10, 5, **{"Call stack": "a.py(1): f"}),
            span("Runtime", "cudaLaunchKernel", 11, 1, tid="25738", correlation=1),
            span("Kernel", "sgemm", 12, 3, tid="stream 7", stream=7, correlation=1) | {"pid": 0},
            span("Memcpy", "Memcpy HtoD", 15, 1, tid="stream 7", stream=7, bytes=400) | {"pid": 0},
            span("Memset", "Memset", 16, 1, tid="stream 7", stream=7, bytes=8) | {"pid": 0},
        ]
    )
    well_formed(trace)
    assert names(trace, "ops") == ["aten::conv2d"]
    assert len(trace.annotations) == 3
    assert trace.gpu.kind.tolist() == [KERNEL, MEMCPY, MEMSET]
    assert trace.gpu.device.tolist() == [0, 0, 0]  # from the process id
    assert trace.gpu.bytes.tolist() == [-1, 400, 8]
    assert {thread.tid for thread in trace.threads} == {1, 25738}
    assert trace.meta.categories["Operator"] == 4


@pytest.mark.parametrize(
    ("category", "table"),
    [
        ("kernel", "gpu"),
        ("gpu_memcpy", "gpu"),
        ("gpu_memset", "gpu"),
        ("cuda_runtime", "runtime"),
        ("cuda_driver", "runtime"),
        ("hip_runtime", "runtime"),
        ("xpu_runtime", "runtime"),
        ("cpu_op", "ops"),
        ("user_annotation", "annotations"),
        ("python_function", "python"),
        ("cuda_sync", "sync"),
        ("xpu_sync", "sync"),
        ("cuda_event", None),
        ("graph_event_node", None),
        ("graph_host_node", "sync"),
        ("collective_comm", None),
        ("xpu_scope_profiler", None),
        ("gpu_user_annotation", None),
        ("Trace", None),
        ("overhead", None),
        ("mtia_ccp_events", None),
        ("of the future", None),
    ],
)
def test_every_category_is_counted_and_has_its_table(category: str, table: str | None) -> None:
    trace = read([span(category, "x", 0, 1)])
    assert {field: len(getattr(trace, field)) for field in TABLES} == {field: field == table for field in TABLES}
    assert trace.meta.categories == {category: 1}
    assert trace.meta.lost_events == 0


@pytest.mark.parametrize("beside", [[], [span("of the future", "x", 0, 1)]], ids=["known", "with unknown categories"])
def test_readings_of_hardware_counters_are_samples(beside: list[Json]) -> None:
    reading = {"ph": "C", "cat": "hardware_counters", "name": "sm__cycles", "pid": "GPU 0 Counters", "ts": 1}
    counters: list[Json] = [{**reading, "args": {"": 0.5}}, {**reading, "args": {"": "text"}}]
    counters += [
        {**reading, "pid": 1, "ts": 2, "args": {"dram": 7}},
        {**reading, "name": 1, "args": {"": 5, "x": True}},
    ]
    trace = read([span("kernel", "k", 0, 1), *counters, *beside])
    assert trace.meta.categories["hardware_counters"] == 4
    assert [trace.names[code] for code in trace.counters.name] == ["sm__cycles", "dram"]
    assert trace.counters.value.tolist() == [0.5, 7.0]
    assert trace.counters.device.tolist() == [0, 1]
    assert trace.counters.time.tolist() == [1_000, 2_000]
    assert trace.meta.event_count == 5 + len(beside)
    assert trace.meta.lost_events == 0


def test_phases_that_carry_nothing_are_counted_as_events() -> None:
    others: list[Json] = [{"ph": phase, "name": "x", "ts": 1, "pid": 1} for phase in "tICBEbneSTpPNODRcvV()"]
    unknown: list[Json] = [{"ph": phase, "name": "x"} for phase in ("Q", "XX", "", "ü")]
    trace = read([*SMALL, *others, *unknown])
    assert trace.meta.event_count == len(SMALL) + len(others) + len(unknown)
    assert trace.meta.lost_events == trace.meta.repaired_events == 0


def test_memory_flows_and_syncs() -> None:
    memory = {
        "Device Id": 0,
        "Device Type": 1,
        "Addr": 5,
        "Bytes": -512,
        "Total Allocated": 1024,
        "Total Reserved": 2e9,
    }
    trace = read(
        [
            *SMALL,
            {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": PID, "tid": 1, "ts": 4.5}
            | {"args": memory},
            {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 10},
            {"ph": "s", "id": 9, "pid": PID, "tid": 1, "ts": 2, "cat": "fwdbwd", "name": "fwdbwd"},
            {"ph": "f", "id": 9, "pid": PID, "tid": 2, "ts": 8, "cat": "forward_backward", "name": "x", "bp": "e"},
            {"ph": "s", "id": 7, "pid": PID, "tid": 1, "ts": 3, "cat": "ac2g", "name": "ac2g"},
            span("cuda_sync", "Stream Sync", 40, 5, device=0, stream=7, correlation=3),
        ]
    )
    well_formed(trace)
    assert trace.memory.time.tolist() == [4500]
    assert trace.memory.bytes.tolist() == [-512]
    assert trace.memory.allocated.tolist() == [1024]
    assert trace.memory.reserved.tolist() == [2_000_000_000]
    assert (trace.memory.device_type[0], trace.memory.device[0]) == (1, 0)
    assert trace.flows.id.tolist() == [9, 9]
    assert trace.flows.finish.tolist() == [0, 1]
    assert [trace.threads[t].tid for t in trace.flows.thread] == [1, 2]
    assert (trace.sync.stream[0], trace.sync.device[0], trace.sync.correlation[0]) == (7, 0, 3)


def test_collectives() -> None:
    args = {"Collective name": "allreduce", "In msg nelems": 4096, "dtype": "BFloat16", "Group size": 8}
    trace = read([kernel("ncclDevKernel_AllReduce", 0, 5, 1, **args), kernel("sgemm", 5, 5, 2)])
    gpu = trace.gpu
    assert [trace.texts[gpu.collective[0]], trace.texts[gpu.collective_dtype[0]]] == ['"allreduce"', '"BFloat16"']
    assert (gpu.collective_elements[0], gpu.group_size[0]) == (4096, 8)
    assert [gpu.collective[1], gpu.collective_elements[1], gpu.group_size[1]] == [-1, -1, -1]


# --- Times ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [0, 1_700_000_000_000_000, 1_623_143_089_861_001])
def test_times_are_exact_nanoseconds(base: int) -> None:
    starts = [0, 1, 2, 1_000_003, 59_999_999]
    trace = read([op("aten::mm", base + start, 7) for start in starts])
    assert trace.ops.start.tolist() == [start * 1000 for start in starts]
    assert trace.ops.duration.tolist() == [7000] * 5


def test_fractions_of_a_microsecond_are_exact() -> None:
    """Kineto now counts from the first day of the quarter: 13 digits and three decimals."""
    times = ["7791913692199.694", "7791913692199.695", "7791913692200.000", "7791914679560.118"]
    text = document([op("n", i, 0.001) for i in range(len(times))]).decode()
    for i, time in enumerate(times):
        text = text.replace(f'"ts": {i},', f'"ts": {time},')
    trace = read(text.encode())
    assert trace.ops.start.tolist() == [0, 1, 306, 987_360_424]
    assert trace.ops.duration.tolist() == [1] * 4


def test_events_in_any_order_are_sorted() -> None:
    events = [op(f"op{i}", i * 3, 1) for i in range(50)] + [kernel(f"k{i}", i * 3 + 1, 1, i) for i in range(50)]
    random.Random(3).shuffle(events)  # noqa: S311
    trace = read(events)
    well_formed(trace)
    assert names(trace, "ops") == [f"op{i}" for i in range(50)]
    assert names(trace, "gpu") == [f"k{i}" for i in range(50)]
    assert trace.gpu.correlation.tolist() == list(range(50))


@pytest.mark.parametrize("bad", [0, -5, 1e18, 1e300])
@pytest.mark.parametrize("place", [0, 1, 5])
def test_a_time_out_of_this_world_costs_its_event_only(bad: float, place: int) -> None:
    events = [op("aten::mm", 1_700_000_000_000_000 + i, 1) for i in range(5)]
    events.insert(place, op("broken", bad, 1))
    trace = read(events)
    well_formed(trace)
    assert names(trace, "ops") == ["aten::mm"] * 5
    assert (trace.meta.lost_events, trace.duration_ns) == (1, 5000)


@pytest.mark.parametrize(
    ("dur", "expected"),
    [
        ("-3", 0),
        ("0", 0),
        ("-0.0", 0),
        ("NaN", 0),
        ("1e999", 0),
        ("null", 0),
        ("18446744073709551615", 0),
        ('"4.5"', 4500),
    ],
)
def test_durations_that_are_none(dur: str, expected: int) -> None:
    text = document(SMALL).replace(b'"dur": 2.5', b'"dur": ' + dur.encode())
    trace = read(text)
    well_formed(trace)
    assert trace.ops.duration.tolist() == [10_000, expected]
    assert trace.meta.lost_events == 0


@pytest.mark.parametrize("ts", ["NaN", "Infinity", "1e999", "null", "[]", '"soon"', "9" * 400])
def test_an_event_without_a_time_is_lost(ts: str) -> None:
    trace = read(document(SMALL).replace(b'"ts": 30', b'"ts": ' + ts.encode()))
    well_formed(trace)
    assert names(trace, "ops") == ["aten::mm"]
    assert trace.meta.lost_events == 1


def test_times_beyond_any_clock_are_none() -> None:
    trace = read([{**event, "ts": 1e308} for event in SMALL])
    well_formed(trace)
    assert (trace.duration_ns, trace.meta.lost_events) == (0, sum(event["ph"] == "X" for event in SMALL))


# --- Odd values -------------------------------------------------------------------------------------------------------


def test_missing_keys() -> None:
    bare: list[Json] = [
        {"ph": "X", "ts": 1},
        {"ph": "X", "cat": "cpu_op", "ts": 9},
        {"ph": "X", "cat": "kernel", "ts": 3},
    ]
    trace = read(
        [*bare, *SMALL, {"ph": "X", "cat": "cpu_op", "name": "no time"}, {"ph": "M"}, {"ph": "i"}, {"ph": "f"}]
    )
    well_formed(trace)
    assert names(trace, "ops") == ["aten::mm", "", "aten::add"]
    assert (trace.gpu.stream[0], trace.gpu.correlation[0], trace.gpu.grid[0].tolist()) == (-1, -1, [-1, -1, -1])
    assert trace.meta.lost_events == 1
    assert trace.meta.event_count == len(SMALL) + 7


def test_null_for_every_value() -> None:
    events = [*SMALL, *META, {"ph": "s", "id": 9, "pid": PID, "tid": 1, "ts": 2, "cat": "fwdbwd", "name": "fwdbwd"}]
    for event in events:
        for key in event:
            if key not in ("ph", "ts"):
                well_formed(read([event | {key: None}, *SMALL]))
        for key in event.get("args", {}):
            trace = read([event | {"args": event["args"] | {key: None}}, *SMALL])
            well_formed(trace)
            assert trace.meta.lost_events == 0
    trace = read([op("aten::mm", 0, 1, **{"Input Dims": None, "Call stack": "", "Sequence number": None})])
    assert (trace.ops.dims[0], trace.ops.stack[0], trace.ops.sequence[0]) == (-1, -1, -1)


def test_numbers_as_text_and_text_for_numbers() -> None:
    args = {"stream": "7", "correlation": "12", "device": "1", "grid": "grid(128,)", "block": ["1", "2", "3"]}
    trace = read([span("kernel", "triton_", 0, 1, **args) | {"ts": "10.5", "dur": "2"}, *SMALL])
    well_formed(trace)
    row = names(trace, "gpu").index("triton_")
    assert (trace.gpu.stream[row], trace.gpu.correlation[row], trace.gpu.device[row]) == (7, 12, 1)
    assert trace.gpu.grid[row].tolist() == [-1, -1, -1]
    assert trace.gpu.block[row].tolist() == [1, 2, 3]
    assert trace.gpu.duration[row] == 2000
    trace = read([span("kernel", "k", 0, 1, stream="default", correlation={}, device=[], bytes="many"), *SMALL])
    assert (trace.gpu.stream[0], trace.gpu.correlation[0], trace.gpu.bytes[0]) == (-1, -1, -1)
    assert trace.meta.lost_events == 0


def test_processes_and_threads_that_are_texts() -> None:
    meta = [
        {"ph": "M", "name": "thread_name", "pid": PID, "tid": "25738", "args": {"name": "thread 25738 (python)"}},
        {"ph": "M", "name": "thread_name", "pid": "Spans", "tid": "PyTorch Profiler", "args": {"name": "spans"}},
    ]
    trace = read(
        [
            op("a", 0, 1, tid="25738"),
            op("b", 1, 1, tid=25738),
            op("c", 2, 1, tid="stream 7"),
            op("d", 3, 1, tid="stream 7") | {"pid": "Spans"},
            op("e", 4, 1, tid=-5),
            op("f", 5, 1, tid="PyTorch Profiler") | {"pid": "Spans"},
            *meta,
        ]
    )
    shown = [(trace.threads[t].pid, trace.threads[t].tid, trace.threads[t].name) for t in trace.ops.thread]
    assert shown == [
        (PID, 25738, "thread 25738 (python)"),
        (PID, 25738, "thread 25738 (python)"),
        (PID, "stream 7", ""),
        ("Spans", "stream 7", ""),
        (PID, -5, ""),
        ("Spans", "PyTorch Profiler", "spans"),
    ]
    assert len(trace.threads) == 5


def test_a_thread_whose_name_is_as_long_as_a_packed_number() -> None:
    (thread,) = read([op("a", 0, 1, tid="stream 7")]).threads
    assert thread.tid == "stream 7"


def test_huge_numbers() -> None:
    big = 10**30
    trace = read([kernel("k", 0, 1, big, stream=big, bytes=big, grid=[big, 1, 2**31], device=2**40), *SMALL])
    well_formed(trace)
    gpu = trace.gpu
    assert [gpu.correlation[0], gpu.stream[0], gpu.bytes[0], gpu.device[0]] == [-1, -1, -1, -1]
    assert gpu.grid[0].tolist() == [-1, 1, -1]
    trace = read([op("a", 0, 1, tid=140_737_488_355_327), op("b", 0, 1, tid=140_737_488_355_326)])
    assert sorted(thread.tid for thread in trace.threads) == [140_737_488_355_326, 140_737_488_355_327]


def test_elements_that_are_no_events_are_lost() -> None:
    trace = read(document([*SMALL, 5, None, "x", [], {}, {"ph": []}, {"ph": None}, {"name": "x"}]))
    assert trace.meta.event_count == len(SMALL)
    assert trace.meta.lost_events == 8


def test_recorded_indices() -> None:
    half = [op("a", i, 1, **{"Ev Idx": i * 2}) for i in range(10)]
    assert read(half).meta.recorded_index_share == pytest.approx(10 / 19)
    assert read(SMALL).meta.recorded_index_share is None


# --- Files ------------------------------------------------------------------------------------------------------------


def test_rank_comes_from_the_file_then_from_the_hints() -> None:
    def ranks(info: Any) -> tuple[int | None, int | None]:
        text = document(SMALL, distributedInfo=info)
        meta = read_trace(io.BytesIO(text), "t", rank_hint=5, world_size_hint=9).meta
        return meta.rank, meta.world_size

    assert ranks({"rank": 0, "world_size": 2}) == (0, 2)
    assert ranks({"rank": -1, "world_size": 10**30}) == ranks({"rank": True, "world_size": 2.5}) == (5, 9)
    assert ranks({"backend": "nccl"}) == ranks(None) == ranks([1]) == ranks({"rank": "x"}) == (5, 9)


@pytest.mark.parametrize("base", ["5", 2**63, -1, 10**400, True, None, 1.5, 2**62 + 1])
def test_a_clock_that_cannot_be_is_none(base: Any) -> None:
    assert read(SMALL, baseTimeNanoseconds=base).meta.start_ns is None
    assert read(SMALL, baseTimeNanoseconds=7).meta.start_ns == 7


def test_a_name_without_end_is_cut() -> None:
    trace = read([op("n" * 20_000, 0, 1), op("n" * 16_384, 2, 1)])
    assert [len(name) for name in trace.names] == [16_385, 16_384]


def test_metadata_around_the_events() -> None:
    text = json.dumps({"schemaVersion": 1, "traceEvents": SMALL, "deviceProperties": [{"id": 0}, {"id": 1}, 5]})
    meta = read(text.encode()).meta
    assert meta.header == {"schemaVersion": 1, "deviceProperties": [{"id": 0}, {"id": 1}, 5]}
    assert meta.device_properties() == [{"id": 0}, {"id": 1}]
    assert read(document(SMALL, deviceProperties={"id": 0})).meta.device_properties() == []
    broken = b'{"host": "caf\xe9", "deviceProperties": [{"id": NaN}], ' + document(SMALL)[1:]
    assert read(broken).meta.device_properties() == [{"id": None}]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_the_content_and_not_the_name_tells_gzip(pack: Any) -> None:
    for path in ("trace.json", "trace.json.gz", "trace"):
        trace = read_trace(io.BytesIO(pack(document(SMALL))), path)
        assert (trace.meta.event_count, trace.meta.damage) == (len(SMALL), None)


def test_duplicate_keys_are_as_in_json() -> None:
    text = document(SMALL).replace(b'"name": "aten::add"', b'"name": "first", "ts": 3, "name": "aten::add"')
    trace = read(text)
    assert names(trace, "ops") == ["aten::mm", "aten::add"]
    assert trace.ops.start.tolist() == [2000, 30000]
    assert trace.meta.lost_events == trace.meta.repaired_events == 0


def test_the_text_is_not_held() -> None:
    """Memory depends on the tables: arguments that nothing reads cost no memory, however large."""
    padding = "x" * 5000
    text = document([op("aten::mm", i, 1, ignored=[{"a": padding}]) for i in range(8000)])
    packed = io.BytesIO(gzip.compress(text, 1))
    assert len(text) > 40_000_000
    tracemalloc.start()
    try:
        trace = read_trace(packed, "t")
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(trace.ops) == 8000
    assert held < len(text) / 25
    assert peak < len(text) / 4


# --- Generated --------------------------------------------------------------------------------------------------------


event_names = st.text(max_size=8) | st.sampled_from(["aten::mm", "},{", '"', "\\", "]}"])

generated = st.lists(
    st.tuples(
        st.sampled_from(["cpu_op", "kernel", "cuda_runtime", "python_function", "gpu_memcpy", "overhead", "new"]),
        event_names,
        st.integers(0, 10**9).map(lambda ns: ns / 1000),
        st.integers(0, 10**6).map(lambda ns: ns / 1000),
        st.integers(1, 2**31),
    ),
    min_size=1,
    max_size=30,
)


@given(generated, st.sampled_from([{}, {"separators": (",", ":")}, {"indent": 2}, {"ensure_ascii": False}]))
def test_events_round_trip(rows: list[Any], layout: dict[str, Any]) -> None:
    events = [span(c, name, ts, dur, correlation=correlation) for c, name, ts, dur, correlation in rows]
    trace = read(json.dumps({"traceEvents": events}, **layout).encode("utf-8", "surrogatepass"))
    well_formed(trace)
    table_of = {"cpu_op": "ops", "python_function": "python", "cuda_runtime": "runtime"} | dict.fromkeys(
        ["kernel", "gpu_memcpy"], "gpu"
    )
    shown = [row for row in rows if row[0] in table_of]
    origin = min((round(row[2] * 1000) for row in shown), default=0)
    for table in ("ops", "python", "runtime", "gpu"):
        columns = getattr(trace, table)
        ids = columns.correlation.tolist() if table in ("runtime", "gpu") else [0] * len(columns)
        found = zip(columns.start.tolist(), columns.duration.tolist(), names(trace, table), ids, strict=True)
        expected = [
            (round(ts * 1000) - origin, round(dur * 1000), name, correlation if table in ("runtime", "gpu") else 0)
            for category, name, ts, dur, correlation in shown
            if table_of[category] == table
        ]
        assert sorted(found) == sorted(expected)
    assert trace.meta.event_count == len(rows)
    counts = {category: sum(row[0] == category for row in rows) for category, *_ in rows}
    assert trace.meta.categories == counts


def test_a_long_text_among_many_is_held_once() -> None:
    long, short = {"Input Dims": [[7] * 200_000]}, {"Input Dims": [[7]]}
    text = document([op("aten::mm", 0, 1, **long), *(op("aten::mm", 2 * i, 1, **short) for i in range(1, 2000))])
    tracemalloc.start()
    try:
        trace = read(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(trace.ops) == 2000
    assert peak < 30e6


def test_a_method_of_built_in_objects_has_one_name() -> None:
    names = [f"<built-in method append of list object at 0x7f12{n:02x}>" for n in range(3)]
    trace = read([python(name, 100 * n, 50) for n, name in enumerate(names)])
    assert [trace.names[code] for code in trace.python.name] == ["<built-in method append of list object>"] * 3
    assert len(set(trace.python.name.tolist())) == 1
    assert len(set(trace.names)) == len(trace.names)  # other code numbers names by their text
