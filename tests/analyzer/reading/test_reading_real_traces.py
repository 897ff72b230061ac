"""The tables of real traces agree with a plain reading of the same files by Python's json."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest

from fixtures.real_traces import TRACES
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.tables.schema import KERNEL
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_sites import CallSites
from traceopt.analyzer.timeline.call_tree import build_slices
from traceopt.analyzer.timeline.launch_links import link
from traceopt.analyzer.timeline.marks.marks import find_marks
from traceopt.errors import InputError

pytestmark = pytest.mark.real_traces

OTHER_FILES = ["hta/execution_trace/benchmark_simple_add_et.json.gz", "hta/memory_analysis/memory_timeline.raw.gz"]
LEGACY = "public/pl_0trace.json.gz"
NAMES = sorted({str(path.relative_to(TRACES)) for path in TRACES.rglob("*.gz")} - {*OTHER_FILES, LEGACY})
TABLE_OF = {
    "gpu": {"kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"},
    "runtime": {"cuda_runtime", "cuda_driver", "Runtime"},
    "ops": {"cpu_op", "Operator"},
    "annotations": {"user_annotation"},
    "python": {"python_function"},
    "sync": {"cuda_sync"},
}
Json = dict[str, Any]


@dataclass(frozen=True)
class Plain:
    """A trace as json.loads reads it."""

    document: Json

    @property
    def events(self) -> list[Json]:
        events: list[Json] = self.document["traceEvents"]
        return events

    @cached_property
    def slices(self) -> dict[str, list[Json]]:
        """By category."""
        found: dict[str, list[Json]] = defaultdict(list)
        for event in self.events:
            if event.get("ph") == "X":
                found[event.get("cat", "")].append(event)
        return found

    @cached_property
    def tables(self) -> dict[str, list[Json]]:
        found = {table: [e for name in names for e in self.slices.get(name, ())] for table, names in TABLE_OF.items()}
        both = found["ops"] + found["annotations"]
        for table, wanted in (("ops", False), ("annotations", True)):
            found[table] = [event for event in both if is_annotation(event) == wanted]
        return found


@pytest.fixture(scope="module", params=NAMES, ids=lambda name: name.removesuffix(".json.gz")[-40:])
def pair(request: pytest.FixtureRequest) -> tuple[Trace, Plain]:
    """A trace as traceopt reads it, and as json.loads does."""
    path = TRACES / request.param
    with path.open("rb") as stream:
        trace = read_trace(stream, str(path))
    plain = json.loads(gzip.decompress(path.read_bytes()))
    return trace, Plain(plain if isinstance(plain, dict) else {"traceEvents": plain})


def is_annotation(event: Json) -> bool:
    hidden = ("ProfilerStep#", "enumerate(DataLoader)#", "Optimizer.", "nccl:", "gloo:", "## ")
    return event["cat"] == "user_annotation" or (event["cat"] == "Operator" and event["name"].startswith(hidden))


def test_every_event_is_counted(pair: tuple[Trace, Plain]) -> None:
    trace, plain = pair
    assert trace.meta.event_count == len(plain.events)
    assert trace.meta.categories == {category: len(events) for category, events in plain.slices.items()}
    assert (trace.meta.lost_events, trace.meta.repaired_events, trace.meta.damage) == (0, 0, None)


def _name(event: Json) -> str:
    """Methods of built-in objects have one name for all objects."""
    return re.sub(r" object at 0x[0-9a-f]+>", " object>", event["name"])


def test_tables_hold_the_events(pair: tuple[Trace, Plain]) -> None:
    trace, plain = pair
    kept = [e for events in plain.tables.values() for e in events]
    points = [e for e in plain.events if e["ph"] == "i" and e.get("name") == "[memory]"]
    arrows = [e for e in plain.events if e["ph"] in "sf" and e.get("cat") in ("fwdbwd", "forward_backward")]
    origin = min((float(e["ts"]) for e in kept + points + arrows), default=0.0)
    for table in TABLE_OF:
        columns = getattr(trace, table)
        events = plain.tables[table]
        names = Counter(trace.names[code] for code in columns.name.tolist())
        assert names == Counter(_name(e) for e in events), table
        expected = sorted((float(e["ts"]) - origin) * 1000 for e in events)
        assert np.allclose(columns.start, expected, rtol=0, atol=1), table  # decimals of epoch times are not exact
        durations = defaultdict(float)
        for event in events:
            durations[_name(event)] += float(event.get("dur", 0)) * 1000
        found = np.bincount(columns.name, weights=columns.duration, minlength=len(trace.names))
        assert durations == pytest.approx({name: found[trace.names.index(name)] for name in durations}, abs=1), table
    assert len(trace.memory) == len(points)
    assert trace.memory.bytes.sum() == sum(e["args"]["Bytes"] for e in points)
    assert sorted(trace.flows.id.tolist()) == sorted(int(e["id"]) for e in arrows)


def test_arguments_of_gpu_work(pair: tuple[Trace, Plain]) -> None:
    trace, plain = pair
    gpu = trace.gpu

    def row(event: Json) -> tuple[Any, ...]:
        args = event["args"]
        grid = args.get("grid")
        return (
            event["name"],
            args.get("correlation", -1),
            args.get("stream", -1),
            args.get("device", event["pid"]),
            args.get("bytes", -1),
            tuple(grid) if isinstance(grid, list) else (-1, -1, -1),
        )

    found = zip(
        [trace.names[code] for code in gpu.name],
        gpu.correlation.tolist(),
        gpu.stream.tolist(),
        gpu.device.tolist(),
        gpu.bytes.tolist(),
        map(tuple, gpu.grid.tolist()),
        strict=True,
    )
    assert Counter(found) == Counter(row(e) for e in plain.tables["gpu"])
    assert (gpu.kind == KERNEL).sum() == len(plain.slices["kernel"] + plain.slices["Kernel"])


def test_shapes_and_sequence_numbers_of_operators(pair: tuple[Trace, Plain]) -> None:
    trace, plain = pair

    def row(event: Json) -> tuple[Any, ...]:
        args = event.get("args", {})
        dims = json.dumps(args["Input Dims"]) if "Input Dims" in args else None
        return event["name"], dims, args.get("Sequence number", -1), args.get("Fwd thread id", -1)

    dims = [json.dumps(json.loads(trace.texts[code])) if code >= 0 else None for code in trace.ops.dims]
    found = zip(
        [trace.names[code] for code in trace.ops.name],
        dims,
        trace.ops.sequence.tolist(),
        trace.ops.forward_thread.tolist(),
        strict=True,
    )
    assert Counter(found) == Counter(row(e) for e in plain.tables["ops"])


def test_threads(pair: tuple[Trace, Plain]) -> None:
    trace, plain = pair
    cpu = [e for table in ("runtime", "ops", "annotations", "python") for e in plain.tables[table]]
    found: Counter[tuple[str, str]] = Counter()
    for table in (trace.runtime, trace.ops, trace.annotations, trace.python):
        found.update((str(trace.threads[t].pid), str(trace.threads[t].tid)) for t in table.thread)
    assert found == Counter((str(e["pid"]), str(e["tid"])) for e in cpu)
    named = {
        (str(e["pid"]), str(e["tid"])): e["args"]["name"]
        for e in plain.events
        if e["ph"] == "M" and e["name"] == "thread_name"
    }
    for thread in trace.threads:
        assert thread.name == named.get((str(thread.pid), str(thread.tid)), "")


def test_metadata(pair: tuple[Trace, Plain]) -> None:
    trace, plain = pair
    assert trace.meta.header == {key: value for key, value in plain.document.items() if key != "traceEvents"}
    info = plain.document.get("distributedInfo", {})
    assert (trace.meta.rank, trace.meta.world_size) == (info.get("rank"), info.get("world_size"))


def test_launches(pair: tuple[Trace, Plain]) -> None:
    """Every piece of GPU work whose launch is in the file finds a call with its correlation id."""
    trace, plain = pair
    offered = {e["args"].get("correlation", -1) for e in plain.tables["runtime"]} - {-1, 0}
    links = link(trace, build_slices(trace))
    known = np.isin(trace.gpu.correlation, list(offered))
    assert ((links.launch >= 0) == known).all()
    rows = links.launch[known]
    assert (trace.runtime.correlation[rows] == trace.gpu.correlation[known]).all()


def test_steps(pair: tuple[Trace, Plain]) -> None:
    trace, plain = pair
    marked = {e["name"] for e in plain.tables["annotations"] if e["name"].startswith("ProfilerStep")}
    marks = find_marks(trace)
    if marked:
        assert marks.source == "profiler_step"
        assert {*marks.names} == marked
    assert len(marks.names) == len(marks.start) == len(marks.end) >= 1
    assert (marks.end > marks.start).all()
    assert (marks.start[1:] >= marks.end[:-1]).all()


def test_call_sites_are_the_users(pair: tuple[Trace, Plain]) -> None:
    trace, _ = pair
    sites = CallSites(trace, build_slices(trace))
    found = sites.of(np.arange(len(sites.slices)))
    if len(trace.python):
        assert (found >= 0).any() or "vllm" in " ".join(trace.names)
    for site in sites.sites:
        assert not site.file.startswith(("torch/", "/home/", "/root/", "threading.py", "<"))
        assert "site-packages" not in site.file


def test_backward_operators_of_2021_are_called_where_their_forward_was() -> None:
    path = TRACES / "kineto/resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz"
    with path.open("rb") as stream:
        trace = read_trace(stream, str(path))
    slices = build_slices(trace)
    sites = CallSites(trace, slices)
    conv = trace.names.index("CudnnConvolutionBackward")
    found = sites.of(np.flatnonzero(slices.name == conv))
    places = {sites.sites[site] for site in found}
    assert {place.file for place in places} == {"torchvision/models/resnet.py"}
    assert {place.line for place in places} == {124, 128, 132, 136, 232}  # the convolutions of a block, and the first
    callers = {sites.user_caller_of(place.file, place.function) for place in places}
    assert {str(caller.file) for caller in callers if caller} == {"resnet50_profiler_api.py"}
    assert {caller.line for caller in callers if caller} == {46}  # outputs = model(inputs)


@pytest.mark.parametrize("name", OTHER_FILES)
def test_other_files_of_the_profiler_are_no_traces(name: str) -> None:
    with (
        (TRACES / name).open("rb") as stream,
        pytest.raises(InputError, match=r"is an execution trace|is a memory timeline"),
    ):
        read_trace(stream, name)


@pytest.mark.skipif(not (TRACES / LEGACY).is_file(), reason="this trace is absent")
def test_an_export_of_the_legacy_profiler_is_named() -> None:
    with (TRACES / LEGACY).open("rb") as stream, pytest.raises(InputError, match="the legacy autograd profiler"):
        read_trace(stream, LEGACY)
