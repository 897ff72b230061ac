"""The columns of a trace: one frozen class of named NumPy arrays per kind of event.

Every table is sorted by `start` (`time` for points). Times are int64 nanoseconds since the first event of the trace.
`name` and the columns of type `Text` are codes into the dictionaries `Trace.names` and `Trace.texts`; -1 means "not in
the event" in every integer column. `thread` is an index into `Trace.threads`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.columns import Columns

# The types of columns. A column is declared once, as a field of its table: SCHEMA, and the fields read from an event's
# `args`, follow from the name of the type.
I8 = npt.NDArray[np.int64]
I4 = npt.NDArray[np.int32]
I4x3 = npt.NDArray[np.int32]  # shape (rows, 3)
U1 = npt.NDArray[np.uint8]
F8 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]  # which rows
Text = npt.NDArray[np.int32]  # codes into `Trace.texts`
_DTYPES = {"I8": "i8", "I4": "i4", "I4x3": "i4x3", "U1": "u1", "F8": "f8", "Text": "i4"}
# Columns that do not come from the event's `args`.
_OF_EVENT = frozenset({"start", "duration", "time", "name", "kind", "thread", "id", "finish", "call_line"})

T = TypeVar("T", bound="Table")

_STREAM_NUMBERS = 2**40  # a device has fewer streams: profilers number them in 32 bits
KERNEL, MEMCPY, MEMSET = 0, 1, 2  # GpuTable.kind


class Table(Columns, frozen=True):
    """Base of the tables. `SCHEMA` maps their columns to dtypes ("i4x3": three numbers per row)."""

    SCHEMA: ClassVar[dict[str, str]] = {}
    KINDS: ClassVar[dict[str, str]] = {}  # names of the columns' types: "I8", "Text", ...

    def __init_subclass__(cls) -> None:
        own = {name: kind for name, kind in cls.__annotations__.items() if kind in _DTYPES}
        cls.KINDS = {**cls.KINDS, **own}
        cls.SCHEMA = {name: _DTYPES[kind] for name, kind in cls.KINDS.items()}

    @classmethod
    def of_args(cls, *kinds: str) -> tuple[str, ...]:
        """The columns that come from an event's `args`: all of them, or those of some kinds."""
        return tuple(n for n, kind in cls.KINDS.items() if n not in _OF_EVENT and (not kinds or kind in kinds))

    @classmethod
    def empty(cls: type[T]) -> T:
        """A table without rows."""
        shapes = {"i4x3": ((0, 3), np.int32)}
        return cls(**{name: np.empty(*shapes.get(kind, (0, kind))) for name, kind in cls.SCHEMA.items()})


class Spans(Table, frozen=True):
    """A table whose rows have a duration."""

    start: I8  # ns
    duration: I8  # ns, >= 0
    name: I4

    @property
    def end(self) -> I8:
        return self.start + self.duration

    def end_of(self, rows: npt.NDArray[Any]) -> I8:
        """When some of the rows end. Shape (len(rows),)."""
        return np.asarray(self.start[rows] + self.duration[rows])

    def meets(self, start: int, end: int) -> npt.NDArray[np.bool_]:
        """Which rows overlap [start, end)."""
        return (self.start < end) & (self.duration > start - self.start)


class ThreadSpans(Spans, frozen=True):
    """A table of what CPU threads did."""

    thread: I4


class DeviceSpans(Spans, frozen=True, dict=True):
    """A table of what streams of devices did."""

    device: I4
    stream: I8  # devices number their streams independently
    correlation: I8

    @cached_property
    def queue(self) -> I8:
        """The stream of each row, numbered so that streams of different devices differ."""
        return queue_of(self.device, self.stream)


def queue_of(device: I4, stream: I8) -> I8:
    """The queue of a stream: on device 0, or where no device is recorded, the stream's own number."""
    return np.asarray(stream + np.maximum(device, 0).astype(np.int64) * _STREAM_NUMBERS)


def device_of_queue(queue: I8) -> I8:
    """The device of a queue; 0 where none is recorded."""
    return np.asarray(np.maximum(queue, 0) // _STREAM_NUMBERS)


class GpuTable(DeviceSpans, frozen=True):
    """Work of the devices: kernels, copies, fills. Nothing else counts as GPU work."""

    kind: U1  # KERNEL, MEMCPY, MEMSET
    bytes: I8  # of copies and fills
    grid: I4x3  # blocks
    block: I4x3  # threads per block
    registers: I4  # per thread
    shared_memory: I4  # bytes per block
    occupancy: I4  # per cent of the warps of an SM, as the profiler estimates it from the launch
    collective: Text  # the collective's name in NCCL's metadata
    collective_elements: I8
    collective_dtype: Text
    group_size: I4
    process_group: Text  # its name
    process_group_ranks: Text
    collective_sequence: I8  # sequence number of the collective in its process group
    graph: I8  # id of the CUDA graph that was replayed; 0 or -1: none, or an older profiler
    graph_node: I8  # id of the node in it; nodes are numbered in the order of the capture
    annotation: Text  # JSON of what torch.cuda.graph(enable_annotations=True) noted about the node
    annotation_name: Text  # the same, of an annotation with fields


class RuntimeTable(ThreadSpans, frozen=True):
    """CUDA, HIP and driver calls on CPU threads."""

    correlation: I8


class OpTable(ThreadSpans, frozen=True):
    """PyTorch operators on CPU threads."""

    dims: Text  # JSON of "Input Dims"
    types: Text  # JSON of "Input type"
    concrete: Text  # JSON of "Concrete Inputs"
    stack: Text  # "Call stack" (2021), frames from the innermost out, separated by ";"
    sequence: I8  # autograd sequence number
    forward_thread: I8  # of a backward operator: the thread that ran its forward, in autograd's numbering

    def creators(self, operators: npt.NDArray[np.integer]) -> I8:
        """For each row, the one of some forward operators that created the autograd node of its sequence number; -1:
        none. Every operator reports the number of the next node, so the last to begin with a number created the node.
        """
        by_number = operators[np.lexsort((-self.start[operators], self.sequence[operators]))]
        at = np.searchsorted(self.sequence[by_number], self.sequence)
        found = np.append(by_number, -1)[at]
        return np.where((found >= 0) & (self.sequence[found] == self.sequence), found, -1).astype(np.int64)


class AnnotationTable(ThreadSpans, frozen=True):
    """User annotations on CPU threads: profiler steps, DataLoader, optimizer, collectives, record_function."""

    dims: Text
    types: Text
    stack: Text  # as in OpTable


class PythonTable(ThreadSpans, frozen=True):
    """Python frames and calls of builtins on CPU threads, named "file(line): function"."""

    call_line: I4  # line of the user's code that makes this call; -1: not called by user code, or not recorded


class SyncTable(DeviceSpans, frozen=True):
    """Device-side rows that record what waited for what; they are not work."""

    awaited_stream: I8  # of a wait for an event: the stream on which the event was recorded
    event_record: I8  # correlation id of the call that recorded the event


class MemoryTable(Table, frozen=True):
    """Allocations (bytes > 0) and frees (bytes < 0) with the totals after them."""

    time: I8  # ns
    bytes: I8
    address: I8
    allocated: I8
    reserved: I8
    device_type: I4  # c10::DeviceType: 0 CPU, 1 CUDA, 6 HIP
    device: I4
    thread: I4


class FlowTable(Table, frozen=True):
    """Ends of forward-to-backward arrows: `finish` is 0 at the forward operator, 1 at the backward operator."""

    time: I8  # ns
    id: I8
    thread: I4
    finish: U1


class ArrowTable(Table, frozen=True):
    """Both ends of the arrows from launches to their work, of files without correlation ids. The process and thread of
    work are its device and stream.
    """

    time: I8  # ns
    id: I8
    pid: I8
    tid: I8


class CounterTable(Table, frozen=True):
    """Samples of a GPU's hardware counters."""

    time: I8  # ns
    name: I4  # with its unit, as "SMs Active [Throughput %]"
    device: I4
    value: F8  # in the unit of the name
