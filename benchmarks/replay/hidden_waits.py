"""Hides recorded sync rows from the replay, which then infers the waits, and counts how many it infers right.

Only waits of 30 us and more count: the awaited work ended that much after the host, or the stream, was ready otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.graph import HOST, Graph
from traceopt.analyzer.replay.queues import EARLY
from traceopt.analyzer.tables.schema import I8, SyncTable
from traceopt.testing.events import read, span
from traceopt.testing.machine import STREAM, Machine

PROGRAMS = 40
SHORT_NS = 30_000  # a shorter wait is not told from the usual lags
STREAMS = (STREAM, 20, 24)

Wait = tuple[int, int]  # who waits, the work that it waits for: rows of the trace's tables


class HiddenWaits(Struct, frozen=True):
    """Counts of waits: in the sync rows, inferred without them, and in both."""

    recorded: int
    inferred: int
    both: int

    @property
    def recall(self) -> float:
        """The share of the recorded waits that are inferred."""
        return self.both / self.recorded if self.recorded else 1.0

    @property
    def precision(self) -> float:
        """The share of the inferred waits that are recorded."""
        return self.both / self.inferred if self.inferred else 1.0


def hide(facts: Facts) -> tuple[HiddenWaits, HiddenWaits]:
    """The waits of the host, and those of streams."""
    nothing = SyncTable(*(getattr(facts.trace.sync, name)[:0] for name in SyncTable.__struct_fields__))
    blind = Facts(replace(facts.trace, sync=nothing))
    runtime = facts.trace.runtime
    known = np.isin(runtime.correlation, facts.trace.sync.correlation)
    host = [{wait for wait in _host_waits(one.replay_graph) if known[wait[0]]} for one in (facts, blind)]
    stream = [_stream_waits(one.replay_graph) for one in (facts, blind)]
    return _counted(*host), _counted(*stream)


def _counted(recorded: set[Wait], inferred: set[Wait]) -> HiddenWaits:
    return HiddenWaits(len(recorded), len(inferred), len(recorded & inferred))


def _host_waits(graph: Graph) -> set[Wait]:
    rows = np.flatnonzero((graph.rows.stream == HOST) & (graph.rows.awaits >= 0))
    target = graph.rows.awaits[rows]
    late = graph.measured_end[target] > graph.host_end[rows] + SHORT_NS
    return set(zip(graph.call[rows[late]].tolist(), graph.work[target[late]].tolist(), strict=True))


def _stream_waits(graph: Graph) -> set[Wait]:
    rows = np.flatnonzero((graph.rows.stream != HOST) & (graph.rows.awaits >= 0))
    target = graph.rows.awaits[rows]
    late = graph.measured_end[target] > np.maximum(graph.host_end, _stream_free(graph))[rows] + SHORT_NS
    return set(zip(graph.work[rows[late]].tolist(), graph.work[target[late]].tolist(), strict=True))


def _stream_free(graph: Graph) -> I8:
    """When the earlier work on the stream of each row had ended."""
    free = np.full(len(graph.rows), EARLY)
    for stream in distinct_values(graph.rows.stream):
        rows = np.flatnonzero(graph.rows.stream == stream)
        free[rows[1:]] = np.maximum.accumulate(graph.measured_end[rows])[:-1]
    return free


def total(counts: list[HiddenWaits]) -> HiddenWaits:
    return HiddenWaits(*(sum(getattr(count, name) for count in counts) for name in HiddenWaits.__struct_fields__))


def programs() -> Iterator[Facts]:
    """Random programs on several streams whose waits for events, streams and the device are all recorded."""
    for seed in range(PROGRAMS):
        yield Facts(read(_Program(random.Random(seed)).run().to_bytes()))  # noqa: S311


class _Program:
    """Launches, events and waits in random order; every wait leaves a sync row."""

    def __init__(self, choice: random.Random) -> None:
        self.choice = choice
        self.machine = Machine()
        self.events: list[tuple[int, int, float]] = []  # correlation id of the record, its stream, when it is reached
        self.held = dict.fromkeys(STREAMS, 0.0)  # until when a stream waits for another

    def run(self) -> Machine:
        for _ in range(4):
            with self.machine.step():
                for _ in range(60):
                    self.machine.work(self.choice.uniform(5, 60))
                    self.choice.choices((self.launch, self.record, self.stream_wait, self.sync), (12, 2, 2, 1))[0]()
                self.device_sync()
        return self.machine

    def launch(self) -> None:
        stream = self.choice.choice(STREAMS)
        self.machine.launch(self.choice.uniform(10, 400), stream, after=self.held[stream])
        self.held[stream] = 0.0

    def record(self) -> None:
        stream = self.choice.choice(STREAMS)
        number = self.machine.call("cudaEventRecord")
        self.events.append((number, stream, self.machine.ends[stream]))

    def stream_wait(self) -> None:
        if not self.events:
            return
        record, awaited, reached = self.events[-1]
        stream = self.choice.choice([one for one in STREAMS if one != awaited])
        number = self.machine.call("cudaStreamWaitEvent")
        self.held[stream] = max(self.held[stream], reached + 2)
        self.row("Stream Wait Event", number, stream, wait_on_stream=awaited, wait_on_cuda_event_record_corr_id=record)

    def sync(self) -> None:
        kind = self.choice.choice(("event", "stream"))
        if kind == "event" and self.events:
            record, awaited, reached = self.choice.choice(self.events[-3:])
            number = self.machine.call("cudaEventSynchronize", 2, until=reached + 4)
            self.row("Event Sync", number, -1, wait_on_stream=awaited, wait_on_cuda_event_record_corr_id=record)
        else:
            stream = self.choice.choice(STREAMS)
            number = self.machine.call("cudaStreamSynchronize", 2, until=self.machine.ends[stream] + 4)
            self.row("Stream Sync", number, stream)

    def device_sync(self) -> None:
        self.machine.synchronize()
        self.events.clear()

    def row(self, name: str, correlation: int, stream: int, **said: int) -> None:
        args = {"device": 0, "stream": stream, "correlation": correlation} | said
        self.machine.events.append(span("cuda_sync", name, self.machine.now, 1, stream, **args))
