"""Facts of communication: collectives, what they overlap, and what they slow down."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from traceopt.analyzer.arrays.grouping import numbered, split
from traceopt.analyzer.arrays.intervals import Intervals, merge, union
from traceopt.analyzer.attribution.syncs import SCALAR_READ
from traceopt.analyzer.communication.collectives import CollectiveCalls, find_collectives, find_cpu_collectives
from traceopt.analyzer.communication.data_parallel import find_data_parallel_calls
from traceopt.analyzer.communication.device_times import DeviceTimes, DeviceWaits
from traceopt.analyzer.communication.experts import ALL_TO_ALL, ExpertLoad, find_expert_load
from traceopt.analyzer.communication.gradient_reductions import GradientReductions, find_gradient_reductions
from traceopt.analyzer.communication.late_waits import LateWaits, find_late_waits
from traceopt.analyzer.communication.node_link import NodeLink, find_node_link
from traceopt.analyzer.communication.overlap import Overlap, cpu_overlap, gpu_overlap
from traceopt.analyzer.communication.overlap_slowdown import OverlappedKernel, find_overlapped_kernels
from traceopt.analyzer.communication.pipeline import PipelineStage, find_pipeline_stage
from traceopt.analyzer.communication.process_groups import (
    GroupOverlap,
    ProcessGroup,
    find_group_overlaps,
    find_only_group,
    find_process_groups,
)
from traceopt.analyzer.communication.serialized import SerializedKinds, find_serialized
from traceopt.analyzer.communication.stage_waits import StageWaits, find_cpu_stage_waits, find_stage_waits
from traceopt.analyzer.facts.autograd import AutogradFacts
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.vocabulary.causes.table import BACKWARD, COMMUNICATION, FORWARD
from traceopt.analyzer.vocabulary.library_frames import is_expert_capacity_frame
from traceopt.analyzer.vocabulary.training_frameworks import SPARSE_PIPELINE_MARK


class CommunicationFacts(AutogradFacts, frozen=True, dict=True):
    """Collectives, what they overlap, and what they slow down."""

    @cached_property
    def collectives(self) -> list[CollectiveCalls]:
        """Collectives by name: calls, duration, exposed time, bytes. A list."""
        if self.has_gpu:
            return find_collectives(self.trace, self.slices, self.links, self.gpu)
        phases = self.cpu_phases
        exposed = phases.areas[COMMUNICATION]
        return find_cpu_collectives(self.trace, self.slices, phases.collectives, exposed, self.steps.window)

    def collectives_of_sites(
        self, calls: CollectiveCalls, wanted: Callable[[CollectiveCalls], bool]
    ) -> CollectiveCalls:
        """The calls of one kind without those of some of the user's lines. `wanted` is asked for the calls of each."""
        sites, group = numbered(self.call_sites.of(calls.call))
        kept = [wanted(calls.take(mine)) for mine in split(np.arange(calls.calls), group, len(sites))]
        return calls.take(np.array(kept, bool)[group])

    def reads_of_sites(self, calls: I8) -> I8:
        """The reads of single values at the user's lines that make some calls: rows of `syncs`."""
        reads = np.flatnonzero(self.syncs.reason == SCALAR_READ)
        site = self.call_sites.of(self.syncs.cause_slice[reads])
        return reads[(site >= 0) & np.isin(site, self.call_sites.of(calls))]

    @cached_property
    def data_parallel_calls(self) -> I8:
        """What nn.DataParallel itself does on the main thread: its autograd functions and Python frames. Slices."""
        return find_data_parallel_calls(self.regions, self.steps.thread)

    @cached_property
    def device_times(self) -> list[DeviceTimes]:
        """What each GPU of the process did, and for which other one it waited. A list; empty for one GPU."""
        if not self.has_gpu or len(self.gpu.devices) < 2:
            return []
        host_waits = union(self.syncs.start, self.syncs.end)
        return DeviceWaits(self.gpu, self.links, self.replay_graph, host_waits).times

    @cached_property
    def serialized_collectives(self) -> list[SerializedKinds]:
        """Kinds of collectives that wait for another kind on the same communicator. A list; empty without a GPU."""
        return find_serialized(self.collectives, self.gpu, self.slices) if self.has_gpu else []

    @cached_property
    def stage_waits(self) -> StageWaits:
        """Sends and receives between pipeline stages, and the wait of the GPU, or of the training thread, in each."""
        return (
            find_stage_waits(self.collectives, self.regions) if self.has_gpu else find_cpu_stage_waits(self.collectives)
        )

    @cached_property
    def late_waits(self) -> LateWaits:
        """Collectives of the GPU that wait for another rank, by the speed of others of their kind."""
        return find_late_waits(self.collectives if self.has_gpu else [], self.gpu, self.steps)

    @cached_property
    def node_link(self) -> NodeLink | None:
        """NVLink or Infinity Fabric between all ranks; None if they may be on several nodes or its rate is unknown."""
        return find_node_link(self.trace.meta, self.device, self.gpu.device, self.captured)

    @cached_property
    def overlap(self) -> Overlap:
        """Exposed communication of each step, and the compute that is left to hide it."""
        return gpu_overlap(self.gpu, self.steps) if self.has_gpu else cpu_overlap(self.cpu_phases, self.steps)

    @cached_property
    def gradient_reductions(self) -> GradientReductions:
        """The collectives that reduce gradients in backward passes, and which of them a later pass repeats."""
        return find_gradient_reductions(self.collectives, self.regions)

    @cached_property
    def exchanges_next_inputs(self) -> bool:
        """Whether TorchRec's pipeline exchanges the embedding inputs of the next batch during this one."""
        return any(name.startswith(SPARSE_PIPELINE_MARK) for name in self.trace.names)

    @cached_property
    def process_groups(self) -> list[ProcessGroup]:
        """Collectives by process group: members, what it is for, exposed time, bytes. A list; without a GPU, empty
        unless there is just one.
        """
        found = self.collectives, self.gradient_reductions, self.stage_waits
        return (
            find_process_groups(self.trace, self.gpu, *found) if self.has_gpu else find_only_group(self.trace, *found)
        )

    @cached_property
    def group_overlaps(self) -> list[GroupOverlap]:
        """What runs while each process group communicates: compute by kind, copies, other groups. A list; empty without
        a GPU.
        """
        return find_group_overlaps(self.gpu, self.process_groups) if self.has_gpu else []

    @cached_property
    def pipeline_stage(self) -> PipelineStage | None:
        """The stage of a pipeline that this rank is: schedule, compute, bubble. None if the trace does not show it."""
        if not len(self.stage_waits.rows):
            return None
        groups, compute = self.process_groups, self.compute_of_passes
        return find_pipeline_stage(self.regions, self.steps, self.stage_waits, groups, compute)

    @cached_property
    def expert_load(self) -> ExpertLoad | None:
        """Tokens that this rank gets for its experts, and its compute on them. None if the trace does not show it."""
        calls = next((collective for collective in self.collectives if collective.name == ALL_TO_ALL), None)
        if calls is None:
            return None
        work, slices, rows = self.gpu.work, self.slices, calls.rows
        ran = (work.start[rows], work.end_of(rows)) if self.has_gpu else (slices.start[rows], slices.end[rows])
        return find_expert_load(self.regions, self.steps, calls, *ran, self.compute_of_passes)

    @cached_property
    def expert_capacity(self) -> str | None:
        """The Python frame that limits how many tokens an expert gets: the others are dropped. None: none is seen, or
        there is no all-to-all.
        """
        if all(calls.name != ALL_TO_ALL for calls in self.collectives):
            return None
        return next(filter(is_expert_capacity_frame, self.trace.names), None)

    @cached_property
    def compute_of_passes(self) -> Intervals:
        """When the device computes, without the optimizer; on a CPU-only run, the training thread."""
        if not self.has_gpu:
            return merge(self.cpu_phases.areas[FORWARD], self.cpu_phases.areas[BACKWARD])
        work, updates = self.gpu.work, self.regions.update_work
        rows = np.flatnonzero(self.gpu.is_compute & ~updates)
        return union(work.start[rows], work.end_of(rows))

    @cached_property
    def overlapped_kernels(self) -> list[OverlappedKernel]:
        """Kinds of kernel that ran under a collective and also alone: how much longer the first takes. A list."""
        return find_overlapped_kernels(self.gpu, self.links, self.tensor_core_work)
