"""Collectives on the GPU or on the CPU: duration, exposed time, bytes moved."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.arrays.intervals import Intervals
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP, Slices
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.launch_links import LaunchLinks
from traceopt.analyzer.vocabulary import op_names

_KIND = re.compile(
    r"(?P<kind>all_?reduce|reduce_?scatter|all_?gather|all_?to_?all|send_?recv|broadcast|reduce|barrier|gather|scatter"
    r"|(?<=:)(?:send|recv))",  # gloo:send, c10d::recv_
    re.I,
)

_FRAME = re.compile(r"torch/distributed/(?:distributed_c10d|c10d_logger|_functional_collectives)\.py\(")

# Bytes per element by type, as the profiler ("c10::Half", "long int") and NCCL ("Half", "Long") spell it.
_ELEMENT_BYTES = {
    **dict.fromkeys(("double", "long", "long int", "long long", "complexfloat", "complex<float>"), 8),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("half", "bfloat16", "short", "short int"), 2),
    **dict.fromkeys(("byte", "char", "signed char", "unsigned char", "bool"), 1),
}


class CollectiveCalls(Struct, frozen=True):
    """Collectives of one kind inside the window, in order of time. Arrays have shape (calls,), times in ns."""

    name: str
    rows: I8  # of the device's work; on a CPU-only run, of the slices
    launch: I8  # the slice that started each, -1: unknown
    call: I8  # the slice of the whole call on the host: torch.distributed's frame or operator, -1: unknown
    duration: I8
    exposed: I8  # not overlapped by compute
    since_last: I8  # from the end of all earlier collectives of any kind to the start; negative: they overlap
    bytes: I8  # that one rank puts in, -1: not recorded
    bus_factor: float | None  # bytes over the link per byte of the buffer, None: unknown
    group_size: int  # ranks of the largest group, 0: not recorded

    @property
    def calls(self) -> int:
        return len(self.rows)

    def take(self, mine: Mask | npt.NDArray[np.integer]) -> CollectiveCalls:
        """Some of the calls."""
        columns = ("rows", "launch", "call", "duration", "exposed", "since_last", "bytes")
        return replace(self, **{name: getattr(self, name)[mine] for name in columns})

    @property
    def known_bytes(self) -> int | None:
        return int(self.bytes.sum()) if len(self.bytes) and (self.bytes >= 0).all() else None

    def bus_gb_per_s(self) -> float | None:
        """Bytes moved over the link per second: the "bus bandwidth" of NCCL tests, GB/s."""
        moved, total = self.known_bytes, int(self.duration.sum())
        return moved * self.bus_factor / total if moved and total and self.bus_factor is not None else None


def find_collectives(trace: Trace, slices: Slices, links: LaunchLinks, gpu: GpuWork) -> list[CollectiveCalls]:
    """The collectives by kind, most exposed first."""
    rows = np.flatnonzero(gpu.is_communication & gpu.is_inside)
    if not len(rows):
        return []
    annotated = _annotation_of(trace, slices, links, rows)
    pairs = list(zip(rows.tolist(), annotated.tolist(), strict=True))  # collectives are few
    kinds = [_kind(trace, gpu, slices, row, slice_) for row, slice_ in pairs]
    sizes = np.array([_bytes(trace, gpu, row, slices, slice_) for row, slice_ in pairs])
    group, world = np.maximum(gpu.work.group_size[rows], 0), trace.meta.world_size or 0
    start, end, launches = gpu.work.start[rows], gpu.work.end_of(rows), links.launch_slice[rows].astype(np.int64)
    every = CollectiveCalls(
        name="",
        rows=rows,
        launch=launches,
        call=_calls_around(trace, slices, launches),
        duration=gpu.in_window[rows],
        exposed=_alone(start, end, gpu.exposed_communication),
        since_last=_since_last(start, end),
        bytes=sizes,
        bus_factor=None,
        group_size=0,
    )
    return _by_kind(every, kinds, group, world)


def find_cpu_collectives(
    trace: Trace, slices: Slices, runs: npt.NDArray[np.bool_], exposed: Intervals, window: Intervals
) -> list[CollectiveCalls]:
    """The collectives of a CPU-only run by kind, most exposed first. `runs` are the slices in which collectives run, on
    threads of their own; `exposed` is when the training thread waits for them, inside the window.
    """
    rows = np.flatnonzero(runs)
    rows = rows[np.argsort(slices.start[rows], kind="stable")]
    kinds = _kinds_of_names(trace)
    launches = _launches(trace, slices, rows, kinds)
    inside = window.within(slices.start[rows], slices.end[rows]) > 0
    rows, launches = rows[inside], launches[inside]
    start, end = slices.start[rows], slices.end[rows]
    pairs = zip(rows.tolist(), launches.tolist(), strict=True)
    every = CollectiveCalls(
        name="",
        rows=rows,
        launch=launches,
        call=_calls_around(trace, slices, launches),
        duration=window.within(start, end),
        exposed=_alone(start, end, exposed),
        since_last=_since_last(start, end),
        bytes=np.array([_bytes_of_run(trace, slices, row, launch) for row, launch in pairs], np.int64),
        bus_factor=None,
        group_size=0,
    )
    of_calls = [kinds[code] for code in slices.name[rows].tolist()]
    return _by_kind(every, of_calls, np.zeros(len(rows), np.int64), trace.meta.world_size or 0)


def _by_kind(every: CollectiveCalls, kinds: Sequence[str], groups: I8, world: int) -> list[CollectiveCalls]:
    """The calls of each kind, most exposed first. `groups`: how many ranks the group of each call has, 0: unknown."""
    out = []
    for kind in sorted(set(kinds)):
        mine = np.array(kinds) == kind
        size = int(groups[mine].max())
        calls = replace(every.take(mine), name=kind, bus_factor=bus_factor(kind, size, world), group_size=size)
        out.append(calls)
    return sorted(out, key=lambda calls: -int(calls.exposed.sum()))


def _alone(start: I8, end: I8, area: Intervals) -> I8:
    """The part of each span, in order of start, that lies in an area. Time of two at once counts for the first."""
    begun_before = np.maximum.accumulate(np.append(start[:1], end))[:-1]
    return area.within(np.maximum(start, np.minimum(begun_before, end)), end)


def _since_last(start: I8, end: I8) -> I8:
    """The time from the end of all earlier collectives to the start of each; the first has the largest number."""
    order = np.argsort(start, kind="stable")
    ended = np.maximum.accumulate(end[order])
    since = np.full(len(start), np.iinfo(np.int64).max)
    since[order[1:]] = start[order[1:]] - ended[:-1]
    return since


def _calls_around(trace: Trace, slices: Slices, launches: I8) -> I8:
    """The outermost slice of the call that made each launch; the launch itself if nothing is recorded around it."""
    names = [op_names.is_collective_annotation(name) or _FRAME.search(name) is not None for name in trace.names]
    whole = slices.mask(slices.outermost(np.array(names or [False])[slices.name]))
    around = slices.ancestor(launches, whole).astype(np.int64)
    return np.where(around >= 0, around, launches)


def _kinds_of_names(trace: Trace) -> list[str]:
    """The kind of collective for every name of the trace."""
    return [_kind_of(name) or "collective" for name in trace.names]


def _launches(trace: Trace, slices: Slices, runs: I8, kinds: list[str]) -> I8:
    """The operator that started each run of a collective; -1: before the trace. Operators and runs of a kind are in the
    same order, and each operator begins before its run.

    A loop, because each match depends on the previous one; collectives are few.
    """
    starts = np.array([op_names.is_collective_call(name) for name in trace.names] or [False])
    calls = np.flatnonzero((slices.kind == OP) & starts[slices.name])
    waiting: dict[str, list[int]] = {}
    for call in calls[np.argsort(slices.start[calls], kind="stable")].tolist():
        waiting.setdefault(kinds[slices.name[call]], []).append(call)
    out = []
    for run in runs.tolist():
        queue = waiting.get(kinds[slices.name[run]], [])
        begun = bool(queue) and slices.start[queue[0]] <= slices.start[run]
        out.append(queue.pop(0) if begun else -1)
    return np.array(out, np.int64)


def _bytes_of_run(trace: Trace, slices: Slices, run: int, launch: int) -> int:
    own = _annotated_bytes(trace, slices, run)
    return _annotated_bytes(trace, slices, launch) if own < 0 <= launch else own


def _annotation_of(trace: Trace, slices: Slices, links: LaunchLinks, rows: I8) -> I8:
    """The slice such as `nccl:all_reduce` around each launch, -1: none."""
    codes = np.array([op_names.is_collective_annotation(name) for name in trace.names] or [False])
    wanted = codes[slices.name] & np.isin(slices.kind, (ANNOTATION, OP))
    return slices.ancestor(links.launch_slice[rows], wanted).astype(np.int64)


def bus_factor(kind: str, group: int, world: int) -> float | None:
    """Link bytes per byte that a rank puts in (NCCL tests, "Performance reported by NCCL tests"): in a group of n ranks
    a ring moves (n - 1) / n of the larger buffer, and an all-reduce moves that twice.

    `group` is 0 if its size was not recorded, and the world is taken for it. That is not enough for a gather, because a
    rank puts in one of n parts: None.
    """
    ranks = group or world
    if kind in ("all_gather", "gather"):
        return float(group - 1) if group > 1 else None
    moved = (ranks - 1) / ranks if ranks > 1 and kind not in ("broadcast", "reduce") else 1.0
    return 2 * moved if kind == "all_reduce" else moved


def _kind(trace: Trace, gpu: GpuWork, slices: Slices, row: int, annotation: int) -> str:
    """The kind from NCCL's metadata, else from the annotation around the launch, else from the kernel's name."""
    texts = [trace.names[gpu.work.name[row]]]
    if annotation >= 0:
        texts.insert(0, trace.names[slices.name[annotation]])
    if gpu.work.collective[row] >= 0:
        texts.insert(0, trace.texts[gpu.work.collective[row]])
    return next((kind for text in texts if (kind := _kind_of(text))), "collective")


def _kind_of(text: str) -> str | None:
    match = _KIND.search(text)
    return _spelled(match["kind"]) if match else None


def _spelled(kind: str) -> str:
    plain = kind.lower().replace("_", "")
    return {
        "allreduce": "all_reduce",
        "reducescatter": "reduce_scatter",
        "allgather": "all_gather",
        "alltoall": "all_to_all",
        **dict.fromkeys(("sendrecv", "send", "recv"), "send_recv"),
    }.get(plain, plain)


def _bytes(trace: Trace, gpu: GpuWork, row: int, slices: Slices, annotation: int) -> int:
    """Bytes from NCCL's metadata on the kernel, else from the annotation's input sizes; -1: not recorded."""
    elements = int(gpu.work.collective_elements[row])
    if elements >= 0 and gpu.work.collective_dtype[row] >= 0:
        size = _element_bytes(trace.texts[gpu.work.collective_dtype[row]].strip('"'))
        return -1 if size is None else elements * size
    return _annotated_bytes(trace, slices, annotation) if annotation >= 0 else -1


def _annotated_bytes(trace: Trace, slices: Slices, annotation: int) -> int:
    """Bytes from the input sizes of a slice; -1: not recorded."""
    table = trace.annotations if slices.kind[annotation] == ANNOTATION else trace.ops
    own = int(slices.row[annotation])
    if table.dims[own] < 0:
        return -1
    return _tensor_bytes(trace.texts[table.dims[own]], trace.texts[table.types[own]] if table.types[own] >= 0 else "[]")


def _element_bytes(dtype: str) -> int | None:
    plain = dtype.lower().removeprefix("c10::")
    return 1 if plain.startswith("float8") else _ELEMENT_BYTES.get(plain)


def _tensor_bytes(dims_text: str, types_text: str) -> int:
    try:
        dims = msgspec.json.decode(dims_text)
        types = msgspec.json.decode(types_text)
    except msgspec.DecodeError:
        return -1
    total = 0
    for index, shape in enumerate(dims):
        if not isinstance(shape, list) or not shape:
            continue
        element = (_element_bytes(str(types[index])) if index < len(types) else None) or 4
        sizes = shape if isinstance(shape[0], list) else [shape]
        for size in sizes:
            if size and all(isinstance(n, int) for n in size):
                total += int(np.prod(size, dtype=np.int64)) * element
    return total if total else -1
