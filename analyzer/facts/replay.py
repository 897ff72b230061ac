"""Facts of the replay: the step as a graph that is re-timed after a change, and how far that can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import Intervals, merge
from traceopt.analyzer.attribution.replayed_parts import ReplayedParts
from traceopt.analyzer.facts.attribution import AttributionFacts
from traceopt.analyzer.replay.changes import Change, WithoutRecording
from traceopt.analyzer.replay.error import MAX_ERROR_SHARE, ReplayError, replay_error
from traceopt.analyzer.replay.graph import Graph, build_graph
from traceopt.analyzer.replay.profiler_cost import find_profiler_cost
from traceopt.analyzer.replay.replayed import Replayed, replay
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import PYTHON
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING, GRAPH_CALLBACK, PROFILER, QUEUED

# What recording took with an H100 (docs/replay.md): an event, of the host, usually and at most; a kernel, of the GPU,
# at least. Up to 4 us were seen, but where it was not measured, more could promise too much.
EVENT_NS, KERNEL_NS = (3_000, 7_000), 1_000
MOST_LOADING = 0.2  # of the step: if the loop waits for data, the host's own time says little about the profiler


class ReplayFacts(AttributionFacts, frozen=True, dict=True):
    """The step as a graph that is re-timed after a change, and how far that can be trusted."""

    @cached_property
    def replay_graph(self) -> Graph:
        """The dependency graph of all recorded steps that the replay re-times."""
        facts = self.of_every_step
        steps, profiler = self.recorded_steps, facts.profiler_cost
        return build_graph(self.trace, self.slices, self.links, facts.gpu, steps, profiler, self.earlier_work)

    @cached_property
    def profiler_cost(self) -> Intervals:
        """When the profiler itself delayed the host: in its own overheads, and at every event if the durations of
        unprofiled steps are known.
        """
        frames = self.frames_recorded_with_times
        at_events = find_profiler_cost(self.slices, self.steps, self.captured.profiler_ns, frames)
        overheads = self.host.rows_of(PROFILER)
        return merge(at_events, self.slices.area_of(overheads))

    @cached_property
    def recorded_events(self) -> I8:
        """How many events were recorded in the host's time before each row of the graph, without Python frames, which
        come from another cycle or cost less. Shape (rows,).
        """
        slices, graph = self.slices, self.replay_graph
        launching = np.zeros(len(self.trace.threads), bool)
        launching[self.trace.runtime.thread[graph.call[graph.call >= 0]]] = True
        launching[self.steps.thread] = True
        start = np.sort(slices.start[(slices.kind != PYTHON) & launching[slices.thread]])
        counted: I8 = np.searchsorted(start, graph.host_end) - np.searchsorted(start, graph.host_start)
        return counted

    def without_recording(self, host_ns: float, device_ns: float) -> WithoutRecording:
        """Takes what recording cost out of a replay: of the host at each event, and of the device at each kernel."""
        return WithoutRecording(self.recorded_events, host_ns, device_ns)

    @cached_property
    def replayed_without_recording(self) -> dict[int, Replayed]:
        """The steps replayed as if recording an event had cost the host so much: each of `EVENT_NS`, in ns."""
        return {cost_ns: self.replay([self.without_recording(cost_ns, KERNEL_NS)]) for cost_ns in EVENT_NS}

    @property
    def recording_cost_unknown(self) -> bool:
        """Whether nobody measured steps without the profiler, which slows the host by an unknown time at each event.
        Where the loop waits for data, that matters less.
        """
        one_device = self.has_gpu and (self.trace.meta.world_size or 1) == 1
        unknown = one_device and self.captured.ledger is None and self.steps.source == "profiler_step"
        return unknown and self.stalls.typical_ns(DATA_LOADING) <= MOST_LOADING * self.step_ns

    @property
    def frames_recorded_with_times(self) -> bool:
        """Python frames were recorded together with the times, which makes Python slower."""
        return self.call_sites.recorded and self.trace.meta.detail is None

    def replay(self, changes: Sequence[Change] = ()) -> Replayed:
        """All recorded steps, re-timed with changes applied."""
        return replay(self.replay_graph, self.recorded_steps, changes)

    @cached_property
    def replayed(self) -> Replayed:
        """The steps replayed without a change: the baseline of all savings."""
        return self.replay()

    def parts_of(self, replayed: Replayed) -> dict[Cause, float]:
        """Exclusive parts of a replayed step, as in `parts_by_step`: ns of the typical step. They sum to it."""
        gpu = self.gpu if self.has_gpu else None
        areas = self.flow_areas if self.has_gpu else self.of_every_step.cpu_phases.areas
        called, queued = (self.idle.typical_ns(cause) if gpu else 0.0 for cause in (GRAPH_CALLBACK, QUEUED))
        return ReplayedParts(areas, gpu, called / (called + queued) if called else 0.0).of(replayed)

    @cached_property
    def flow_areas(self) -> dict[Cause, Intervals]:
        """What the host threads that launch work did: exclusive areas by cause."""
        calls = self.replay_graph.call
        launching_threads = distinct_values(self.trace.runtime.thread[calls[calls >= 0]])
        others = launching_threads[launching_threads != self.steps.thread].tolist()
        return self.host_flow.of(others[-1] if others else self.steps.thread)

    @cached_property
    def replay_error(self) -> ReplayError | None:
        """Error of a replay without a change; None if there is nothing to replay."""
        return replay_error(self.replay_graph, self.recorded_steps, self.has_gpu)

    @property
    def replay_trusted(self) -> bool:
        """Whether the replay gives the recorded steps back, and predicts each from the others."""
        return self.replay_error is not None and self.replay_error.steps_share <= MAX_ERROR_SHARE

    @property
    def replay_complete(self) -> bool:
        """Whether the replay is trusted and the file also explains what the host waited for."""
        return self.replay_error is not None and self.replay_error.share <= MAX_ERROR_SHARE

    def label(self, cause: Cause) -> str:
        """What people call a part of this step. Where launches are unknown, no label speaks of them."""
        without_launches = not self.has_gpu or (self.replay_error is None and not cause.busy)
        return (without_launches and cause.host_label) or cause.label
