"""A trace in memory: one rank's events as columnar tables, and the metadata of the file."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from msgspec import Struct, field

from traceopt.analyzer.tables.counter_ranges import CounterRanges
from traceopt.analyzer.tables.schema import (
    I8,
    AnnotationTable,
    CounterTable,
    FlowTable,
    GpuTable,
    Mask,
    MemoryTable,
    OpTable,
    PythonTable,
    RuntimeTable,
    SyncTable,
)


class Thread(Struct, frozen=True):
    """A CPU thread of the traced process. `name` comes from the profiler, "" if it gave none."""

    pid: int | str
    tid: int | str
    name: str


class TimeFault(Struct, frozen=True):
    """One kind of times that cannot be. `mended`: they were corrected; otherwise nothing that rests on them holds."""

    kind: Literal["clock", "drift", "overlap", "unit", "far", "left_out"]
    mended: bool
    count: int  # events that show it
    of: int  # events that could
    amount_ns: float = 0.0  # "clock", "drift": how far the GPU's clock is ahead; "far", "left_out": from the others
    device: int | None = None


CUT_OFF = "the file is truncated inside the events"  # damage


class TraceMeta(Struct, frozen=True):
    """What the file says about itself, and how reading it went."""

    path: str
    header: dict[str, Any]  # the JSON document without its events
    rank: int | None
    world_size: int | None
    event_count: int
    byte_count: int  # of the uncompressed text
    sha256: str | None  # of the file, compressed or not; None if it could not be read to its end
    lost_events: int
    repaired_events: int
    unread_bytes: int  # of the text, in which no event could be read
    damage: str | None  # what is wrong with the file, in words
    # Events in the file as a share of those that the profiler numbered ("Ev Idx"); 1.0: all.
    recorded_index_share: float | None
    categories: dict[str, int]  # number of complete events by category, and of readings of hardware counters
    start_ns: int | None  # of the first event, on the machine's clock
    detail: TraceMeta | None = None  # of the detail cycle that shapes, frames and memory come from
    # If the times are corrected for the profiler: what recording an event cost the host, and the step as recorded.
    event_cost_ns: float | None = None
    kernel_cost_ns: float = 0.0
    recorded_step_ns: float | None = None
    time_faults: tuple[TimeFault, ...] = ()
    arrow_ends: int = 0  # of arrows from launches to their work
    engine: str | None = None  # name of an inference engine's process beside a training, whose ranks are its own

    def device_properties(self) -> list[dict[str, Any]]:
        devices = self.header.get("deviceProperties")
        return [d for d in devices if isinstance(d, dict)] if isinstance(devices, list) else []

    @property
    def listed_gpu(self) -> str:
        """The name of the first listed device; "GPU" if there is none."""
        listed = self.device_properties()
        return str(listed[0].get("name") or "GPU") if listed else "GPU"


class Trace(Struct, frozen=True):
    """One file's events. `names` and `texts` are the dictionaries of the tables' codes."""

    meta: TraceMeta
    names: list[str]
    texts: list[str]
    threads: list[Thread]
    gpu: GpuTable
    runtime: RuntimeTable
    ops: OpTable
    annotations: AnnotationTable
    python: PythonTable
    sync: SyncTable
    memory: MemoryTable
    flows: FlowTable
    counters: CounterTable = field(default_factory=CounterTable.empty)
    counter_ranges: tuple[CounterRanges, ...] = ()
    # Rows of `ops` whose shapes are of another cycle's step that worked on other sizes: they say nothing of the times.
    resized: I8 = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def sized(self) -> Mask:
        """Which operators have the shapes on which they worked in their time. Shape (len(ops),)."""
        known = self.ops.dims >= 0
        known[self.resized] = False
        return known

    @property
    def links_launches(self) -> bool:
        """Whether the file tells which call launched which work."""
        return bool((self.gpu.correlation > 0).any() and (self.runtime.correlation > 0).any())

    @property
    def duration_ns(self) -> int:
        """From the first event to the end of the last one."""
        tables = (self.gpu, self.runtime, self.ops, self.annotations, self.python)
        return max((int(table.end.max()) for table in tables if len(table)), default=0)


def no_trace(path: str) -> Trace:
    """No events at all, for a run of which only files beside a trace are known."""
    meta = TraceMeta(
        path=path,
        header={},
        rank=None,
        world_size=None,
        event_count=0,
        byte_count=0,
        sha256=None,
        lost_events=0,
        repaired_events=0,
        unread_bytes=0,
        damage=None,
        recorded_index_share=None,
        categories={},
        start_ns=None,
    )
    return Trace(
        meta=meta,
        names=[],
        texts=[],
        threads=[],
        gpu=GpuTable.empty(),
        runtime=RuntimeTable.empty(),
        ops=OpTable.empty(),
        annotations=AnnotationTable.empty(),
        python=PythonTable.empty(),
        sync=SyncTable.empty(),
        memory=MemoryTable.empty(),
        flows=FlowTable.empty(),
    )
