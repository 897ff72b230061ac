"""The recorded steps as they are without the profiler, which slows the host at every event that it records.

`traceopt run` also measures steps that it does not record. Where these are shorter because the host had less to do, the
replay finds the cost of an event with which the recorded steps take as long, and gives every event the time that it
would have without that cost. The GPU does the same work in the same time, so it waits less: a step that waits for the
host in the recording may be bound by the GPU in truth.

A busy GPU hides the cost: the recorded steps are as long as the others, but a fix that shortens the GPU's work would
seem to gain little, because the slow host is the limit then. There an event costs what it usually does, at least.

The GPU writes the time stamps of its work as well, which takes some microseconds a kernel. Where the GPU is the limit,
the steps say how long; elsewhere it takes what it usually does, because a fix of the host may make the GPU the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.facts.replay import KERNEL_NS, MOST_LOADING
from traceopt.analyzer.replay.graph import Graph, Rows
from traceopt.analyzer.replay.retime import Timing, retime
from traceopt.analyzer.run_log.run_settings import LONGER
from traceopt.analyzer.tables.schema import I8, Spans
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING

HIDDEN_COST_NS = 3_000  # of an event, where it cannot be measured: hosts with an H100 needed 2,300 to 7,000
MOST_COST_NS = 8_000  # of an event, on the slowest hosts; a larger difference has another cause
MOST_DEVICE_COST_NS = 5_000  # of a kernel: an H100 needed 2,600 to 4,300, 3,300 in the median
GPU_BOUND = 0.85  # of the step: a GPU that is busy for so much of it is the limit
TOLERANCE = 0.15  # of a step that the GPU limits: kernels take a little longer while they are recorded
NEAR = 0.01  # of the step
EXACT_NS = 20  # of the cost of an event

S = TypeVar("S", bound=Spans)


def without_profiler(facts: Facts) -> Facts:
    """The facts of the corrected trace; the same ones where no correction is needed, possible or sure.

    Not for several ranks or GPUs: they wait for each other.
    """
    bare_ns = _bare_step_ns(facts)
    if bare_ns is None:
        return facts
    graph = facts.replay_graph
    costs_ns = _costs_ns(facts, bare_ns)
    if costs_ns is None:
        return facts
    host_ns, device_ns = costs_ns
    rows = facts.without_recording(host_ns, device_ns).apply(graph, graph.rows)
    trace = _retimed(facts, graph, rows, retime(graph, rows))
    return Facts(
        replace(
            trace,
            meta=replace(trace.meta, event_cost_ns=host_ns, kernel_cost_ns=device_ns, recorded_step_ns=facts.step_ns),
        ),
        facts.device_overrides,
        facts.workload,
        facts.companions,
    )


def _bare_step_ns(facts: Facts) -> float | None:
    """The step without a profiler; None if that is not known, or the recorded one is unlike it for another reason."""
    captured, meta = facts.captured, facts.trace.meta
    ledger = captured.ledger
    if captured.corrected or ledger is None or captured.stretch is None or ledger.usual_step_ns is None:
        return None
    if not facts.has_gpu or (meta.world_size or 1) > 1 or len(facts.trace.counters):
        return None
    damaged = facts.quality.damaged or facts.quality.cut_off or facts.quality.sampled_share is not None
    if damaged or facts.frames_recorded_with_times or facts.steps.source != "profiler_step" or not facts.replay_trusted:
        return None
    loading = facts.host.rows_of(DATA_LOADING)
    loading = loading[facts.slices.thread[loading] == facts.steps.thread]
    loading_ns = facts.steps.host_mean_ns(facts.slices.area_of(loading))
    return ledger.usual_step_ns if loading_ns <= MOST_LOADING * facts.step_ns else None


def _costs_ns(facts: Facts, bare_ns: float) -> tuple[float, float] | None:
    """What recording cost the host at an event, and the device at each piece of work; None if no costs explain the
    recorded steps.
    """
    busy_ns = facts.gpu.busy.total / facts.steps.count

    def step_ns(host_ns: float, device_ns: float = KERNEL_NS) -> float:
        changed = facts.replay([facts.without_recording(host_ns, device_ns)])
        return facts.step_ns * changed.step_ns / facts.replayed.step_ns

    def is_gpu_bound(left_ns: float) -> bool:
        """Whether the GPU limits a step that is as long as without a profiler, so a faster host changes nothing."""
        return busy_ns >= GPU_BOUND * left_ns and left_ns <= (1 + TOLERANCE) * bare_ns

    def device_ns(host_ns: float) -> float:
        if busy_ns < GPU_BOUND * bare_ns:
            return KERNEL_NS
        return _least(lambda cost: step_ns(host_ns, cost), bare_ns, MOST_DEVICE_COST_NS)

    longer = min(facts.captured.stretch or 1.0, facts.step_ns / bare_ns)
    if longer < LONGER:
        if busy_ns >= GPU_BOUND * facts.step_ns and is_gpu_bound(step_ns(HIDDEN_COST_NS)):
            return HIDDEN_COST_NS, device_ns(HIDDEN_COST_NS)
        if longer < 1 + NEAR or busy_ns >= GPU_BOUND * facts.step_ns:
            return None
        return _least(step_ns, bare_ns, HIDDEN_COST_NS), KERNEL_NS
    least_ns = step_ns(MOST_COST_NS)
    hidden = is_gpu_bound(least_ns)
    enough_ns = max(bare_ns, (1 + NEAR) * least_ns) if hidden else bare_ns
    if least_ns > enough_ns:
        return None
    host_ns = _least(step_ns, enough_ns, MOST_COST_NS)
    if hidden:
        host_ns = max(host_ns, HIDDEN_COST_NS)
    return host_ns, device_ns(host_ns)


def _least(step_ns: Callable[[float], float], enough_ns: float, most_ns: float) -> float:
    """The lowest cost without which a step is short enough; at most `most_ns`."""
    low, high = 0.0, most_ns
    while high - low > EXACT_NS:
        middle = (low + high) / 2
        low, high = (middle, high) if step_ns(middle) > enough_ns else (low, middle)
    return high


def _retimed(facts: Facts, graph: Graph, rows: Rows, timing: Timing) -> Trace:
    """The trace with every event where the replay has it."""
    trace, clock = facts.trace, _Clock.of(graph, rows, timing)
    work = np.flatnonzero(graph.work >= 0)
    gpu_rows = graph.work[work]
    start = clock(trace.gpu.start)
    duration = trace.gpu.duration.copy()
    duration[gpu_rows] = rows.duration[work]
    start[gpu_rows] = timing.end[work] - duration[gpu_rows]
    gpu = replace(trace.gpu, start=start, duration=duration)
    return replace(
        trace,
        gpu=gpu.take(np.argsort(gpu.start, kind="stable")),
        runtime=clock.moved(trace.runtime),
        ops=clock.moved(trace.ops),
        annotations=clock.moved(trace.annotations),
        python=clock.moved(trace.python),
        sync=clock.moved(trace.sync),
        memory=replace(trace.memory, time=clock(trace.memory.time)),
        flows=replace(trace.flows, time=clock(trace.flows.time)),
    )


class _Clock(Struct, frozen=True):
    """Maps recorded times of the host to corrected ones. Both increase; what follows the last step keeps its length."""

    recorded: I8
    corrected: I8

    @classmethod
    def of(cls, graph: Graph, rows: Rows, timing: Timing) -> _Clock:
        """The host's time before each call begins when it is done with the row before, and then has its new length."""
        first = graph.fixed + np.flatnonzero(np.diff(graph.host_start[graph.fixed :], prepend=-1) > 0)
        begins = np.append(graph.host_start[first[0]], timing.clock[first[1:] - 1])
        recorded = np.column_stack((graph.host_start[first], graph.host_end[first])).ravel()
        corrected = np.column_stack((begins, begins + rows.host[first])).ravel()
        return cls(np.maximum.accumulate(recorded), np.maximum.accumulate(corrected))

    def __call__(self, time: I8) -> I8:
        moved = np.interp(time, self.recorded, self.corrected)
        after = np.maximum(time - self.recorded[-1], 0)
        before = np.minimum(time - self.recorded[0], 0)
        whole: I8 = np.rint(moved).astype(np.int64) + after + before
        return whole

    def moved(self, table: S) -> S:
        start = self(table.start)
        return replace(table, start=start, duration=self(table.end) - start)
