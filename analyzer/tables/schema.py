"""The columns of a trace: one frozen class of named numpy arrays a kind of event.

Every table is sorted by `start` (`time` for points). Times are int64 nanoseconds from the trace's first event. `name`,
and the columns said to be texts, are codes into the trace's dictionaries `Trace.names` and `Trace.texts`; -1 means
"not in the event" in every integer column. `thread` is an index into `Trace.threads`.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

I8 = npt.NDArray[np.int64]
I4 = npt.NDArray[np.int32]
U1 = npt.NDArray[np.uint8]

T = TypeVar("T", bound="Table")

KERNEL, MEMCPY, MEMSET = 0, 1, 2  # GpuTable.kind


class Table(Struct, frozen=True):
    """Base of the tables: as long as its columns; `SCHEMA` gives dtypes ("i4x3": three numbers a row)."""

    SCHEMA: ClassVar[dict[str, str]] = {}

    def __len__(self) -> int:
        return len(getattr(self, self.__struct_fields__[0]))

    def take(self: T, rows: npt.NDArray[Any]) -> T:
        """The rows of an index array or a mask, in that order."""
        return type(self)(**{column: getattr(self, column)[rows] for column in self.__struct_fields__})


class Spans(Table, frozen=True):
    """A table whose rows last."""

    start: I8  # ns
    duration: I8  # ns, >= 0
    name: I4

    SCHEMA: ClassVar[dict[str, str]] = {"start": "i8", "duration": "i8", "name": "i4"}

    @property
    def end(self) -> I8:
        return self.start + self.duration

    def end_of(self, rows: npt.NDArray[Any]) -> I8:
        """The end of some rows. Shape (len(rows),)."""
        return np.asarray(self.start[rows] + self.duration[rows])

    def meets(self, start: int, end: int) -> npt.NDArray[np.bool_]:
        """Which rows are partly in a stretch of time."""
        return (self.start < end) & (self.duration > start - self.start)


class ThreadSpans(Spans, frozen=True):
    """A table of what CPU threads did."""

    thread: I4

    SCHEMA: ClassVar[dict[str, str]] = {**Spans.SCHEMA, "thread": "i4"}


class GpuTable(Spans, frozen=True):
    """Work of the device: kernels, copies, fills. Nothing else counts as GPU work."""

    kind: U1  # KERNEL, MEMCPY, MEMSET
    device: I4
    stream: I8
    correlation: I8
    bytes: I8  # copies and fills
    grid: I4  # (n, 3) blocks
    block: I4  # (n, 3) threads a block
    collective: I4  # text: a collective's name, as NCCL's metadata has it
    collective_elements: I8
    collective_dtype: I4  # text
    group_size: I4
    process_group: I4  # text: its name
    process_group_ranks: I4  # text
    collective_sequence: I8  # number of a collective in its process group

    SCHEMA: ClassVar[dict[str, str]] = {
        **Spans.SCHEMA,
        "kind": "u1",
        "device": "i4",
        "stream": "i8",
        "correlation": "i8",
        "bytes": "i8",
        "grid": "i4x3",
        "block": "i4x3",
        "collective": "i4",
        "collective_elements": "i8",
        "collective_dtype": "i4",
        "group_size": "i4",
        "process_group": "i4",
        "process_group_ranks": "i4",
        "collective_sequence": "i8",
    }


class RuntimeTable(ThreadSpans, frozen=True):
    """CUDA, HIP and driver calls on CPU threads."""

    correlation: I8

    SCHEMA: ClassVar[dict[str, str]] = {**ThreadSpans.SCHEMA, "correlation": "i8"}


class OpTable(ThreadSpans, frozen=True):
    """PyTorch operators on CPU threads."""

    dims: I4  # text: JSON of "Input Dims"
    types: I4  # text: JSON of "Input type"
    concrete: I4  # text: JSON of "Concrete Inputs"
    stack: I4  # text: "Call stack" (2021), frames from the innermost, separated by ";"
    sequence: I8  # autograd sequence number
    forward_thread: I8  # of a backward operator: the thread that ran its forward, as autograd numbers it

    SCHEMA: ClassVar[dict[str, str]] = {
        **ThreadSpans.SCHEMA,
        "dims": "i4",
        "types": "i4",
        "concrete": "i4",
        "stack": "i4",
        "sequence": "i8",
        "forward_thread": "i8",
    }


class AnnotationTable(ThreadSpans, frozen=True):
    """User annotations on CPU threads: profiler steps, DataLoader, optimizer, collectives, record_function."""

    dims: I4
    types: I4
    stack: I4  # text, as in OpTable

    SCHEMA: ClassVar[dict[str, str]] = {
        **ThreadSpans.SCHEMA,
        "dims": "i4",
        "types": "i4",
        "stack": "i4",
    }


class PythonTable(ThreadSpans, frozen=True):
    """Python frames and calls of builtins on CPU threads, named "file(line): function"."""

    call_line: I4  # of the user's code that makes this call; -1: another's code, or not recorded

    SCHEMA: ClassVar[dict[str, str]] = {**ThreadSpans.SCHEMA, "call_line": "i4"}


class SyncTable(Spans, frozen=True):
    """Device-side rows that say what waited for what; they are no work."""

    device: I4
    stream: I8
    correlation: I8
    awaited_stream: I8  # of a wait for an event: the stream that it was recorded on
    event_record: I8  # correlation of the call that recorded the event

    SCHEMA: ClassVar[dict[str, str]] = {
        **Spans.SCHEMA,
        "device": "i4",
        "stream": "i8",
        "correlation": "i8",
        "awaited_stream": "i8",
        "event_record": "i8",
    }


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

    SCHEMA: ClassVar[dict[str, str]] = {
        "time": "i8",
        "bytes": "i8",
        "address": "i8",
        "allocated": "i8",
        "reserved": "i8",
        "device_type": "i4",
        "device": "i4",
        "thread": "i4",
    }


class FlowTable(Table, frozen=True):
    """Ends of the forward-to-backward arrows: `finish` 0 at the forward operator, 1 at the backward one."""

    time: I8  # ns
    id: I8
    thread: I4
    finish: U1

    SCHEMA: ClassVar[dict[str, str]] = {"time": "i8", "id": "i8", "thread": "i4", "finish": "u1"}
