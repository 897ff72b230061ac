"""Everything measured in one trace. Each fact is computed from the tables on first use. Rules read facts,
never events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import distinct_values, numbered, split
from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, merge, union
from traceopt.analyzer.arrays.name_totals import NameTotal, totals_by_name
from traceopt.analyzer.attribution.attribution import Attribution
from traceopt.analyzer.attribution.compiled_pieces import CompiledPieces, breaks_in_steps, find_compiled_pieces
from traceopt.analyzer.attribution.cpu_phases import CpuPhases
from traceopt.analyzer.attribution.host_flow import CpuOperators, HostFlow
from traceopt.analyzer.attribution.idle import Gaps, Idle, attribute, find_gaps, slow_calls
from traceopt.analyzer.attribution.main_thread_calls import MainThreadCalls, main_thread_calls, waits_for_others
from traceopt.analyzer.attribution.replayed_parts import ReplayedParts
from traceopt.analyzer.attribution.rl_phases import PhaseMarks, RlPhase, find_phase_marks, find_rl_phases
from traceopt.analyzer.attribution.start_up import first_fetches, startup_calls
from traceopt.analyzer.attribution.syncs import Syncs, after_unscaling, blocking_copies, find_syncs
from traceopt.analyzer.attribution.untraced_python import NO_UNTRACED_PYTHON, UntracedPython, find_untraced_python
from traceopt.analyzer.autograd.cleared_nodes import ClearedNodes, find_cleared_nodes
from traceopt.analyzer.autograd.host_reads import operators_for_host_reads
from traceopt.analyzer.autograd.nodes import accumulations_per_step, nodes_per_step, weight_products
from traceopt.analyzer.autograd.one_hot_products import OneHotProducts, find_one_hot_products
from traceopt.analyzer.autograd.repeated_nodes import repeated_nodes
from traceopt.analyzer.autograd.untrained_calls import UntrainedCalls, calls_without_backward, calls_without_gradients
from traceopt.analyzer.communication.collectives import CollectiveCalls, find_collectives, find_cpu_collectives
from traceopt.analyzer.communication.copy_collectives import copy_collectives
from traceopt.analyzer.communication.gradient_reductions import GradientReductions, find_gradient_reductions
from traceopt.analyzer.communication.node_link import NodeLink, find_node_link
from traceopt.analyzer.communication.overlap import Overlap, cpu_overlap, gpu_overlap
from traceopt.analyzer.communication.overlap_slowdown import OverlappedKernel, find_overlapped_kernels
from traceopt.analyzer.communication.serialized import SerializedKinds, find_serialized
from traceopt.analyzer.companions.companions import Companions
from traceopt.analyzer.cuda_graphs.graph_origins import GraphOrigins, find_graph_origins
from traceopt.analyzer.cuda_graphs.launch_repetition import Repetition, find_repetition
from traceopt.analyzer.memory.blocks import MemoryBlocks, find_blocks
from traceopt.analyzer.memory.composition import Composition, compose
from traceopt.analyzer.memory.curve import Allocator, DeviceMemory, find_allocator, find_memory
from traceopt.analyzer.memory.model_state import ModelState, find_model_state
from traceopt.analyzer.recording_state import RecordingState, find_state
from traceopt.analyzer.replay.changes import Change
from traceopt.analyzer.replay.error import MAX_ERROR_SHARE, ReplayError, replay_error
from traceopt.analyzer.replay.graph import Graph, build_graph
from traceopt.analyzer.replay.profiler_cost import find_profiler_cost
from traceopt.analyzer.replay.replayed import Replayed, replay
from traceopt.analyzer.run_log.constructions import find_framework
from traceopt.analyzer.run_log.memory_growth import MemoryOverRun, find_memory_over_run
from traceopt.analyzer.run_log.regular_steps import RegularSteps, find_regular_steps
from traceopt.analyzer.run_log.run_settings import Captured, captured
from traceopt.analyzer.run_log.step_drift import Drift, find_drift
from traceopt.analyzer.tables.compilation import Compilation, GraphBreak
from traceopt.analyzer.tables.counter_ranges import CounterRanges
from traceopt.analyzer.tables.schema import I4, I8, Mask
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline import recurrent_layers
from traceopt.analyzer.timeline.call_sites import CallSites
from traceopt.analyzer.timeline.call_tree import OP, PYTHON, RUNTIME, Slices, build_slices
from traceopt.analyzer.timeline.device import TraceDevice, find_device
from traceopt.analyzer.timeline.earlier_work import find_earlier_work
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.host_activity import Host, prepared_output, training_functions
from traceopt.analyzer.timeline.kernel_launches import KernelLaunches
from traceopt.analyzer.timeline.launch_calls import LaunchCalls
from traceopt.analyzer.timeline.launch_links import LaunchLinks, launch_times, link
from traceopt.analyzer.timeline.python_stretches import PythonStretches, python_stretches
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.serving import Serving, find_engine, find_serving
from traceopt.analyzer.timeline.steps import (
    Marks,
    Steps,
    find_marks,
    find_steps,
    outlasted,
    whole_trace,
    without_empty_end,
)
from traceopt.analyzer.trace_quality import TraceQuality
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.host_names import (
    GRADIENT_FRAME,
    LOGGING_FRAME,
    PROFILER_FRAME,
    REPORTING_FUNCTION,
)
from traceopt.analyzer.vocabulary.causes.table import (
    ALLOCATION,
    BACKWARD,
    COMMUNICATION,
    COMPUTE,
    COPIES,
    FORWARD,
    HOST_SYNC,
    LOADER_STARTUP,
    LOGGING,
    MODULE_LOAD,
    OPTIMIZER,
    STARTUP,
)
from traceopt.analyzer.vocabulary.causes.table import PYTHON as RUNNING_PYTHON
from traceopt.analyzer.vocabulary.kernels.kernel_names import FUSIBLE_KINDS, is_gradient
from traceopt.analyzer.vocabulary.phases.serving_steps import Engine
from traceopt.analyzer.vocabulary.python_frames import is_recorder
from traceopt.analyzer.vocabulary.training_frameworks import TrainingFramework
from traceopt.analyzer.work.attention import (
    MathAttention,
    UnfusedAttention,
    find_math_attention,
    find_unfused_attention,
)
from traceopt.analyzer.work.batch_norms import BatchNorms, find_batch_norms
from traceopt.analyzer.work.casts import Casts, find_casts
from traceopt.analyzer.work.convolutions import Convolutions
from traceopt.analyzer.work.copies import CopyCalls, find_copies
from traceopt.analyzer.work.cpu_attention import CpuAttention, find_cpu_attention, find_cpu_math_attention
from traceopt.analyzer.work.cpu_work import CpuWork
from traceopt.analyzer.work.flops import Flops
from traceopt.analyzer.work.gemm_calls import GemmCalls
from traceopt.analyzer.work.gemms import Gemms
from traceopt.analyzer.work.hardware_counters import MeasuredCounters, find_measured_counters
from traceopt.analyzer.work.tensor_core_work import TensorCoreWork
from traceopt.analyzer.work.throughput import MeasuredThroughput, Workload, measure
from traceopt.analyzer.work.tiny_ops import CalledOps, ParameterWork, find_called_ops, find_parameter_work
from traceopt.analyzer.work.unfused_chains import Chains, find_chains

_SAME_FOR_ALL_STEPS = ("slices", "links", "call_sites", "marks", "earlier_work", "recorded_steps")


class Facts(Struct, frozen=True, dict=True):
    """The facts of one trace. `device_overrides` corrects or extends the peak table (see accelerator_lookup.find);
    `workload` says what the run processes per step, `companions` what the files beside the trace say.
    """

    trace: Trace
    device_overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    workload: Workload = field(default_factory=Workload)
    companions: Companions = field(default_factory=Companions)
    every_step: bool = False

    @property
    def has_trace(self) -> bool:
        """There is a trace, and not only files that are recorded beside one."""
        return self.trace.meta.event_count > 0

    @cached_property
    def marks(self) -> Marks:
        """What marks the steps on the main thread: annotations of the profiler, of the program, or nothing."""
        return find_marks(self.trace)

    @cached_property
    def earlier_work(self) -> Intervals:
        """The beginning of the recording while the GPU ran work from before it, which the file does not hold: one
        interval, or none. No step includes it.
        """
        return find_earlier_work(self.trace, self.links)

    @cached_property
    def recorded_steps(self) -> Steps:
        """All recorded steps, also those that are unusual."""
        marks, runtime = self.marks, self.trace.runtime
        work = GpuWork(self.trace, EMPTY, EMPTY)
        launch = self.links.launch[work.rows]
        launched = launch_times(work.work, launch, runtime)
        if len(launch) and launch.max() < 0 and outlasted(marks, work.work.start, work.work.end):
            marks = whole_trace(self.trace)  # nothing shows to which of the marks the work belongs
        started = launched if len(runtime) else self.trace.ops.start
        return find_steps(without_empty_end(marks, started), launched, work.work.end, self.earlier_work)

    @cached_property
    def steps(self) -> Steps:
        """The typical steps, over which all other facts are averaged: where each begins and ends, and the thread of the
        training loop.
        """
        return self.recorded_steps if self.every_step else self.recorded_steps.typical

    @cached_property
    def of_every_step(self) -> Facts:
        """The facts of all recorded steps, for what happens in unusual steps."""
        if self.steps is self.recorded_steps:
            return self
        facts = Facts(self.trace, self.device_overrides, self.workload, self.companions, every_step=True)
        vars(facts).update({name: getattr(self, name) for name in _SAME_FOR_ALL_STEPS})
        return facts

    @property
    def from_nsight(self) -> bool:
        """Whether the trace is an export of Nsight Systems."""
        return isinstance(self.trace.meta.header.get("nsight"), dict)

    @property
    def has_step_marks(self) -> bool:
        """Whether the trace marks its steps. If not, the whole recording counts as one step."""
        return self.steps.source != "window"

    @property
    def step_ns(self) -> float:
        """The mean of the typical steps, in ns."""
        return self.steps.window_ns / self.steps.count

    @cached_property
    def throughput(self) -> MeasuredThroughput | None:
        """Tokens or samples per second of one GPU; None unless the user said what a step processes."""
        return measure(self.workload, self.step_ns)

    @cached_property
    def slices(self) -> Slices:
        """The call tree of the CPU threads: operators, annotations, runtime calls, Python frames."""
        return build_slices(self.trace)

    @cached_property
    def links(self) -> LaunchLinks:
        """Which call launched each row of GPU work, and the operator around that call."""
        return link(self.trace, self.slices)

    @cached_property
    def launch_calls(self) -> LaunchCalls:
        """The calls that launched the GPU work: how far into the step, and which user function makes most."""
        return LaunchCalls(self.gpu, self.links, self.call_sites, self.steps)

    @cached_property
    def kernel_launches(self) -> KernelLaunches:
        """How the GPU work was launched: blocks, registers, occupancy, streams, and the time in the queue."""
        return KernelLaunches(self.trace, self.gpu, self.links)

    def slices_by_name(self, rows: npt.NDArray[np.integer], amount: I8) -> list[NameTotal]:
        """Some slices grouped by name, with the total of an amount (ns or bytes) for each name. Largest total first."""
        return totals_by_name(self.trace.names, self.slices.name[rows], rows, amount)

    def work_by_name(self, mask: npt.NDArray[np.bool_]) -> list[NameTotal]:
        """The GPU work of a mask grouped by kernel name, with the total time inside the window, ns. Longest first."""
        rows = np.flatnonzero(mask)
        return totals_by_name(self.trace.names, self.gpu.work.name[rows], rows, self.gpu.in_window[rows])

    @cached_property
    def call_sites(self) -> CallSites:
        """The lines of the user's or a model's code behind slices; `call_sites.recorded`: whether stacks exist."""
        return CallSites(self.trace, self.slices)

    @cached_property
    def gpu(self) -> GpuWork:
        """The GPU work inside the window: kinds, streams, and when the device was busy with what."""
        steps, collectives = self.steps, copy_collectives(self.trace, self.slices, self.links)
        return GpuWork(self.trace, steps.window, steps.host_window, collectives)

    @cached_property
    def device(self) -> TraceDevice:
        """The device: name, vendor, architecture, and peak rates if they are known."""
        return find_device(self.trace, self.gpu.device, self.device_overrides)

    @cached_property
    def measured_counters(self) -> MeasuredCounters | None:
        """What hardware counters measured over the steps and during some of the work; None if they were not sampled."""
        return find_measured_counters(self.trace, self.steps, self.gpu)

    @property
    def counter_ranges(self) -> tuple[CounterRanges, ...]:
        """What CUPTI's range profiler counted, by kernel and metric; the times of such a file are not real."""
        return self.trace.counter_ranges

    @cached_property
    def has_gpu(self) -> bool:
        """There is GPU work inside the window, on a supported device."""
        return self.gpu.busy.total > 0 and self.device.unsupported is None

    @cached_property
    def captured(self) -> Captured:
        """The settings and totals that `traceopt run` recorded; empty for other traces."""
        found = captured(self.trace.meta.header)
        return found if self.trace.meta.event_cost_ns is None else replace(found, corrected=True)

    @cached_property
    def step_drift(self) -> Drift | None:
        """Whether the steps of the whole run became slower; None without a ledger, or with too few steps."""
        ledger = self.captured.ledger
        return find_drift(ledger, self.captured.step_memory) if ledger is not None else None

    @cached_property
    def regular_steps(self) -> RegularSteps | None:
        """Steps of the whole run that are long at a regular interval; None if there are none, or no ledger."""
        ledger = self.captured.ledger
        return find_regular_steps(ledger) if ledger is not None else None

    @cached_property
    def memory_over_run(self) -> MemoryOverRun | None:
        """Whether memory grows steadily over the whole run; None without a ledger, or with too few readings."""
        ledger, memory = self.captured.ledger, self.captured.step_memory
        return find_memory_over_run(ledger, memory) if ledger is not None and memory is not None else None

    @cached_property
    def host(self) -> Host:
        """What each CPU thread did, as exclusive activities: loading data, logging, syncs, launches and the rest."""
        calls = self.slices.of(RUNTIME, len(self.trace.runtime))
        slow, startup = slow_calls(self.gpu, self.gaps), startup_calls(self.gpu, self.gaps, self.slices)
        return Host(
            self.trace,
            self.slices,
            {
                RUNNING_PYTHON: training_functions(self.regions),
                HOST_SYNC: calls[blocking_copies(self.trace, self.links)],
                MODULE_LOAD: calls[slow],
                STARTUP: calls[startup],
                LOADER_STARTUP: first_fetches(self.regions),
                LOGGING: prepared_output(self.regions),
            },
        )

    @cached_property
    def host_flow(self) -> HostFlow:
        """What the threads that launch work did, from launch to launch: dispatch, and long work that is no dispatch."""
        launches = self.links.launch[self.gpu.rows]
        threads = self.trace.runtime.thread[launches[launches >= 0]]
        known, count = np.unique(threads, return_counts=True)
        busiest = known[np.argsort(-count, kind="stable")].tolist()
        untraced = union(self.untraced_python.start, self.untraced_python.end)
        return HostFlow(self.host, self.regions, self.gaps, (self.steps.thread, *busiest), untraced)

    @property
    def cpu_operators(self) -> CpuOperators:
        """Operators that computed on the CPU while the GPU starved: rows of slices, cost, and when."""
        return self.host_flow.cpu_operators

    @cached_property
    def gaps(self) -> Gaps:
        """The idle gaps of the GPU, and for how long each starved (had no work queued)."""
        return find_gaps(self.gpu, self.links, self.steps)

    def gaps_by_operator(self, amount: I8) -> list[NameTotal]:
        """The idle gaps grouped by the operator that launched the work after them, with the total of an amount per gap
        (ns, shape (len(gaps),)). Largest total first; gaps with an amount of 0 are left out.
        """
        gaps = self.gaps
        rows = np.flatnonzero((gaps.next_row < len(self.gpu.work)) & (amount > 0))
        return totals_by_name(self.trace.names, self.regions.op_of_work[gaps.next_row[rows]], rows, amount[rows])

    @cached_property
    def syncs(self) -> Syncs:
        """Every call that blocked the host on the GPU: why it is there, its wait, and the refill after it."""
        return find_syncs(
            self.trace,
            self.slices,
            self.links,
            self.steps,
            self.gpu,
            self.gaps,
            self.host.rows_of(HOST_SYNC),
            self.earlier_work,
        )

    def syncs_by_site(self, mask: npt.NDArray[np.bool_]) -> list[I8]:
        """The syncs of a mask, grouped by the user's line that caused them: rows of `syncs`, one array per line."""
        rows = np.flatnonzero(mask)
        sites, group = numbered(self.call_sites.of(self.syncs.cause_slice[rows]))
        return split(rows, group, len(sites)) if len(rows) else []

    @cached_property
    def reporting_syncs(self) -> npt.NDArray[np.bool_]:
        """Syncs inside a logging call or a function that reports metrics. Shape (len(syncs),)."""
        return self._syncs_below(lambda name: LOGGING_FRAME(name) or REPORTING_FUNCTION(name))

    @cached_property
    def gradient_syncs(self) -> npt.NDArray[np.bool_]:
        """Syncs of gradient clipping and of the loss scaler: inside their frames, or the first after the unscale
        operator.
        """
        below = self._syncs_below(GRADIENT_FRAME)
        return below | after_unscaling(self.trace, self.syncs, self.regions)

    def _syncs_below(self, frame: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        return np.asarray(self.slices.ancestor(self.syncs.slice, self.regions.named(frame, PYTHON)) >= 0)

    @cached_property
    def untraced_python(self) -> UntracedPython:
        """Stretches of Python without any event on a launching thread, while the GPU starved. None where each garbage
        collection was recorded: what is left there is a loop without calls, which is Python like any other.
        """
        if self.captured.collections is not None:
            return NO_UNTRACED_PYTHON
        return find_untraced_python(self.slices, self.gaps, self.trace.names)

    def python_stretches(self, area: Intervals) -> PythonStretches:
        """What the main thread runs in an area: the innermost slice at every time. Without the functions of the
        profiler and of `traceopt run`, and without its waits for the threads of autograd.
        """
        slices = self.slices
        found = python_stretches(slices, self.steps.thread, area, self.steps)
        profiler = slices.ancestor(found.rows, self.regions.named(PROFILER_FRAME, PYTHON)) >= 0
        recorder = slices.ancestor(found.rows, self.regions.named(is_recorder, PYTHON))
        profiler |= recorder > slices.ancestor(found.rows, self.call_sites.code_frames)  # hooks also call the program
        return found.only(~profiler & ~self.regions.named(op_names.is_engine_frame, PYTHON)[found.rows])

    @cached_property
    def idle(self) -> Idle:
        """The idle time of the GPU by cause, per gap and per step."""
        return attribute(self.gaps, self.host_flow.of, self.steps, self.syncs.refill_area)

    @cached_property
    def cpu_phases(self) -> CpuPhases:
        """CPU-only runs: the time of the main thread by phase (forward, backward, loading, ...)."""
        return CpuPhases(self.steps, self.host, self.regions)

    @property
    def stalls(self) -> Attribution:
        """Why the device waits, by cause: idle gaps of the GPU, or phases of the main thread in a CPU-only run."""
        return self.idle if self.has_gpu else self.cpu_phases

    @property
    def parts_by_step(self) -> dict[Cause, I8]:
        """Exclusive parts that sum to each step, by cause: busy parts of the GPU and its idle time, or phases of the
        main thread in a CPU-only run. Shape (steps,), ns.
        """
        gpu, stalls = self.gpu, self.stalls
        areas = {COMPUTE: gpu.compute, COMMUNICATION: gpu.exposed_communication, COPIES: gpu.exposed_copies}
        busy = {cause: self.steps.within(area) for cause, area in areas.items()} if self.has_gpu else {}
        return busy | {cause: stalls.of_steps(cause) for cause in stalls.causes}

    def label(self, cause: Cause) -> str:
        """What people call a part of this step. Where launches are unknown, no label speaks of them."""
        without_launches = not self.has_gpu or (self.replay_error is None and not cause.busy)
        return (without_launches and cause.host_label) or cause.label

    def stalled_within(self, start: I8, end: I8) -> I8:
        """Time of each stretch of host time in which the device stalled: GPU starvation, or all of it in a CPU-only
        run.
        """
        if self.has_gpu:
            return self.gaps.starved.within(start, end)
        return self.steps.window.within(start, end)

    def main_thread_calls(self, activity: Cause) -> MainThreadCalls:
        """The calls of one activity (SLEEP, PROGRAM) on the main thread, and for how long the device waits in each:
        GPU starvation due to this activity, or all of its time in a CPU-only run.
        """
        if not self.has_gpu:
            waits = self.cpu_phases.areas[activity]
        else:
            gaps, mine = self.gaps, self.idle.of_gaps(activity) > 0
            waits = union(gaps.start[mine], gaps.starved_end[mine])
        return main_thread_calls(self.host, self.steps.thread, activity, waits)

    def sleeps_that_wait(self, calls: MainThreadCalls) -> Mask:
        """Which sleeps of the main thread poll for something, or are made by a library. Shape (len(calls),)."""
        return waits_for_others(self.slices, calls.rows, self.call_sites.code_frames)

    @cached_property
    def repetition(self) -> Repetition:
        """Whether every step launches the same kernels in the same order."""
        return find_repetition(self.trace, self.gpu, self.links, self.steps)

    @cached_property
    def regions(self) -> Regions:
        """Named parts of the program: forward, backward, optimizer, zero_grad, attention."""
        return Regions(self.trace, self.slices, self.links, self.gpu)

    @cached_property
    def serving(self) -> Serving | None:
        """Steps of a serving engine by phase (prefill, decode): number, time, tokens; None for other steps."""
        return find_serving(self.trace, self.recorded_steps.host_start, self.recorded_steps.duration)

    @cached_property
    def phase_marks(self) -> PhaseMarks:
        """When annotations or frames mark a phase of reinforcement learning in this process, on any thread."""
        return find_phase_marks(self.regions)

    @cached_property
    def rl_phases(self) -> list[RlPhase]:
        """Phases of a reinforcement-learning step (rollout, reward, weight sync, train) and the idle GPU in each; empty
        for other steps.
        """
        return find_rl_phases(self.phase_marks, self.steps, self.gpu, has_gpu=self.has_gpu)

    @cached_property
    def serving_engine(self) -> Engine | None:
        """The engine that serves the model, by its step annotations or Python frames; None if there is none."""
        return find_engine(self.trace)

    @cached_property
    def training_framework(self) -> TrainingFramework | None:
        """The framework that runs the training loop, by its Python frames, else by its recorded settings."""
        return find_framework(self.trace, self.captured.frameworks)

    @cached_property
    def trains(self) -> bool:
        """A backward pass or an optimizer was seen, also by its kernels alone, and the steps are not those of a serving
        engine.
        """
        if self.serving is not None:
            return False
        regions = self.regions
        if any(is_gradient(self.trace.names[code]) for code in distinct_values(self.gpu.work.name).tolist()):
            return True
        updates = self.gpu.kind.among("optimizer") & self.gpu.fused  # a CUDA graph replays them without an annotation
        return bool(updates.any() or regions.backward.any() or regions.optimizer.any() or regions.zero_grad.any())

    @cached_property
    def infers(self) -> bool:
        """A serving engine was seen, or operators were recorded and none of them trains. Kernels alone do not tell, so
        that a run may be known neither to train nor to infer.
        """
        return not self.trains and (self.serving is not None or len(self.trace.ops) > 0)

    @cached_property
    def compiled_share(self) -> float:
        """Share (0..1) of the kernels in the window that torch.compile generated, or that its code launched; without
        collectives and the optimizer's.
        """
        updates = self.regions.work_under(self.regions.optimizer | self.regions.zero_grad)
        kernels = self.gpu.is_compute & self.gpu.is_inside & ~updates
        return float((self.regions.compiled_work & kernels).sum() / max(1, kernels.sum()))

    @cached_property
    def autograd_nodes(self) -> float:
        """Autograd nodes that the operators of a step record: the median of the steps."""
        return nodes_per_step(self.trace, self.steps)

    @cached_property
    def calls_without_gradients(self) -> UntrainedCalls | None:
        """Forward passes of a training step that run without gradients; None if the trace does not tell."""
        rows = calls_without_gradients(self.regions, self.steps)
        return None if rows is None else self._untrained(rows)

    @cached_property
    def calls_without_backward(self) -> UntrainedCalls:
        """Forward passes of a training step that record gradients which no backward pass uses."""
        return self._untrained(calls_without_backward(self.regions, self.steps))

    @cached_property
    def accumulations(self) -> float:
        """How often a step adds to the gradient of a parameter."""
        return accumulations_per_step(self.regions, self.steps)

    @cached_property
    def backward_products(self) -> I8:
        """Matmuls and convolutions of backward passes: gradients of weights and of activations. Slices."""
        return weight_products(self.regions, self.steps)

    @cached_property
    def backward_nodes(self) -> I8:
        """The nodes of backward passes in the window. Slices, in order."""
        return self._in_window(self.regions.backward)

    @cached_property
    def recurrent_cells(self) -> I8:
        """Calls of nn.LSTMCell and its like in the window. Slices, in order."""
        return recurrent_layers.cells(self.regions, self.steps)

    @cached_property
    def single_sequences(self) -> I8:
        """Calls of nn.LSTM and its like in the window with a batch of one sequence. Slices, in order."""
        return recurrent_layers.single_sequences(self.regions, self.steps)

    @cached_property
    def sampler_calls(self) -> I8:
        """Calls of the samplers of DataLoaders in the window, on the main thread. Slices, in order."""
        calls = self.slices.outermost(self.regions.sampler & (self.slices.thread == self.steps.thread))
        return calls[self.steps.host_window.contains(self.slices.start[calls])].astype(np.int64)

    @cached_property
    def indexing_backward(self) -> I8:
        """The backward nodes of `x[i]` and `x[a:b]` in the window, without those inside paddings. Slices, in order."""
        nodes = self._in_window(self.regions.named(op_names.is_index_backward, OP))
        forward = self.call_sites.forward_of(nodes)
        paddings = self.regions.named(op_names.is_padding, OP)
        padded = (forward >= 0) & (self.slices.ancestor(np.maximum(forward, 0), paddings) >= 0)
        return nodes[~padded]

    @cached_property
    def one_hot_products(self) -> OneHotProducts:
        """Matmuls of a one-hot matrix and a parameter, in the window, with their backward pass."""
        return find_one_hot_products(self.regions, self.steps)

    @cached_property
    def deep_copies(self) -> I8:
        """The outermost calls of `copy.deepcopy` in the window, on the main thread. Slices, in order."""
        slices = self.slices
        calls = slices.outermost(self.regions.deep_copy & (slices.thread == self.steps.thread))
        return calls[self.steps.host_window.contains(slices.start[calls])].astype(np.int64)

    @cached_property
    def repeated_backward(self) -> I8:
        """The nodes of backward passes that an earlier pass over the same forward pass has run too. Slices."""
        return repeated_nodes(self.regions, self.steps)

    @cached_property
    def operators_for_host_reads(self) -> I8:
        """Operators of the window that only compute values which the host reads on the same line. Slices, in order."""
        return operators_for_host_reads(self.regions, self.steps, self.call_sites)

    @cached_property
    def cleared_nodes(self) -> tuple[ClearedNodes, ...]:
        """The backward nodes that compute gradients which the script clears before an optimizer reads them."""
        found = (find_cleared_nodes(self.regions, self.steps, one) for one in self.captured.cleared_gradients or ())
        return tuple(one for one in found if one is not None)

    def _in_window(self, wanted: Mask) -> I8:
        rows = np.flatnonzero(wanted)
        return rows[self.steps.window.contains(self.slices.start[rows])].astype(np.int64)

    def _untrained(self, rows: I8) -> UntrainedCalls:
        if self.has_gpu:
            return UntrainedCalls(rows, self.regions.work_ns(rows))
        forward = self.cpu_phases.areas[FORWARD]
        return UntrainedCalls(rows, forward.within(self.slices.start[rows], self.slices.end[rows]))

    @cached_property
    def tensor_core_work(self) -> TensorCoreWork:
        """GPU work that Tensor Cores could do, and whether they did it."""
        return TensorCoreWork(self.trace, self.slices, self.links, self.gpu)

    @cached_property
    def gemms(self) -> Gemms:
        """Matmuls by shape: type, rate, share of peak, alignment, calling lines."""
        return Gemms(self.trace, self.slices, self.links, self.gpu, self.device)

    @cached_property
    def gemm_calls(self) -> GemmCalls:
        """Matmuls call by call, in the order in which the device ran them."""
        return GemmCalls(self.gemms)

    @cached_property
    def convolutions(self) -> Convolutions:
        """Convolutions with recorded shapes: those with a bias before a batch norm, and whether the shapes repeat."""
        return Convolutions(self.regions, self.steps)

    @cached_property
    def batch_norms(self) -> BatchNorms:
        """Batch norms of pictures with channels first, and how much memory each call has to move."""
        return find_batch_norms(self.gemms)

    @cached_property
    def casts(self) -> Casts:
        """Casts between floating-point types on the device, and which of them only undo each other."""
        return find_casts(self.gemms)

    @cached_property
    def flops(self) -> Flops:
        """FLOP of the window, of the model and recomputed, and their share of the device's peak."""
        return Flops(self.trace, self.slices, self.links, self.gpu, self.device, self.regions, self.tensor_core_work)

    @cached_property
    def chains(self) -> Chains:
        """Chains of unfused memory-bound kernels, without those of the optimizer, of unfused attention and of compiled
        code.
        """
        optimizer = self.regions.work_under(self.regions.optimizer | self.regions.zero_grad)
        fusible = self.gpu.is_kernel & self.gpu.kind.among(*FUSIBLE_KINDS) & ~self.gpu.fused
        fusible &= ~optimizer & ~self.unfused_attention.mask & ~self.regions.compiled_work
        return find_chains(self.gpu, fusible, self.recorded_steps.step_of(self.gpu.work.start))

    @cached_property
    def unfused_attention(self) -> UnfusedAttention:
        """Attention that runs as separate kernels: matmul, softmax, matmul."""
        return find_unfused_attention(self.gpu, self.regions)

    @cached_property
    def math_attention(self) -> MathAttention:
        """Attention in PyTorch's own math path (`scaled_dot_product_attention` without a fused kernel)."""
        return find_math_attention(self.gpu, self.regions, self.unfused_attention)

    @cached_property
    def cpu_attention(self) -> CpuAttention:
        """Attention of a CPU-only run that runs as separate operators."""
        return find_cpu_attention(self.regions, self.steps.window)

    @cached_property
    def cpu_math_attention(self) -> CpuAttention:
        """Calls of scaled_dot_product_attention in a CPU-only run that fell back to its math backend."""
        return find_cpu_math_attention(self.regions, self.steps.window)

    @cached_property
    def cpu_work(self) -> CpuWork:
        """The operators of a CPU-only run: time, FLOP/s, and share of the rate that this CPU reaches."""
        return CpuWork(self.flops, self.regions, self.steps, self.captured.cpu_peaks)

    @cached_property
    def called_ops(self) -> CalledOps:
        """Operators in the forward and backward passes of a CPU-only run, and which are too small for their call."""
        phases = self.cpu_phases.areas
        work = merge(phases[FORWARD], phases[BACKWARD])
        return find_called_ops(self.regions, self.steps.thread, work, self.profiler_cost)

    @cached_property
    def parameter_work(self) -> ParameterWork:
        """CPU-only runs: what is done for each parameter, however small: accumulation, zero_grad, the optimizer."""
        return find_parameter_work(self.regions, self.steps.thread, self.cpu_phases.areas[OPTIMIZER], self.steps)

    @cached_property
    def collectives(self) -> list[CollectiveCalls]:
        """Collectives by name: calls, duration, exposed time, bytes. A list."""
        if self.has_gpu:
            return find_collectives(self.trace, self.slices, self.links, self.gpu)
        phases = self.cpu_phases
        exposed = phases.areas[COMMUNICATION]
        return find_cpu_collectives(self.trace, self.slices, phases.collectives, exposed, self.steps.window)

    @cached_property
    def serialized_collectives(self) -> list[SerializedKinds]:
        """Kinds of collectives that wait for another kind on the same communicator. A list; empty without a GPU."""
        return find_serialized(self.collectives, self.gpu, self.slices) if self.has_gpu else []

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
    def overlapped_kernels(self) -> list[OverlappedKernel]:
        """Kinds of kernel that ran under a collective and also alone: how much longer the first takes. A list."""
        return find_overlapped_kernels(self.gpu, self.links, self.tensor_core_work)

    @cached_property
    def copies(self) -> list[CopyCalls]:
        """Copies between host and device and on the device, by kind. A list."""
        return find_copies(self.gpu)

    @cached_property
    def memory(self) -> DeviceMemory | None:
        """Device memory over time; None if it was not recorded."""
        return find_memory(self.trace, self.recorded_steps, self.has_gpu)

    @cached_property
    def allocator(self) -> Allocator:
        """Whether PyTorch's caching allocator is switched off, or its cache is emptied."""
        return find_allocator(self.trace, self.slices, self.host.rows_of(ALLOCATION), self.steps.host_window)

    @cached_property
    def blocks(self) -> MemoryBlocks | None:
        """Blocks of the device's caching allocator; None if memory was not recorded."""
        return None if self.memory is None else find_blocks(self.trace.memory, self.memory.rows)

    @cached_property
    def model_state(self) -> ModelState | None:
        """What the model and its optimizer keep on the device, by element count; None if it is unknown."""
        return find_model_state(self.trace, self.slices, self.regions.backward_passes, self.captured)

    @cached_property
    def composition(self) -> Composition | None:
        """What the device memory holds at its peak; None for CPU-only runs, whose totals start with the recording."""
        if self.memory is None or self.blocks is None or not self.has_gpu:
            return None
        regions = self.regions
        updates = regions.area(regions.optimizer | regions.zero_grad)
        return compose(self.memory, self.blocks, regions.backward_passes, updates, self.model_state)

    @cached_property
    def replay_graph(self) -> Graph:
        """The dependency graph of all recorded steps that the replay re-times."""
        facts = self.of_every_step
        steps, profiler = self.recorded_steps, facts.profiler_cost
        return build_graph(self.trace, self.slices, self.links, facts.gpu, steps, profiler, self.earlier_work)

    @cached_property
    def profiler_cost(self) -> Intervals:
        """When the profiler itself delayed the host; empty if the durations of unprofiled steps are unknown."""
        frames = self.frames_recorded_with_times
        return find_profiler_cost(self.slices, self.steps, self.captured.profiler_ns, frames)

    @property
    def frames_recorded_with_times(self) -> bool:
        """Python frames were recorded together with the times, which makes Python slower."""
        return self.call_sites.recorded and self.trace.meta.detail is None

    @cached_property
    def replayed(self) -> Replayed:
        """The steps replayed without a change: the baseline of all savings."""
        return self.replay()

    def replay(self, changes: Sequence[Change] = ()) -> Replayed:
        """All recorded steps, re-timed with changes applied."""
        return replay(self.replay_graph, self.recorded_steps, changes)

    def parts_of(self, replayed: Replayed) -> dict[Cause, float]:
        """Exclusive parts of a replayed step, as in `parts_by_step`: ns of the typical step. They sum to it."""
        gpu = self.gpu if self.has_gpu else None
        areas = self.flow_areas if self.has_gpu else self.of_every_step.cpu_phases.areas
        return ReplayedParts(areas, gpu).of(replayed)

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

    @cached_property
    def quality(self) -> TraceQuality:
        """How far the trace can be trusted: missing, cropped, cold or disturbed parts."""
        return TraceQuality(
            self.trace, self.steps, self.gpu, self.links, self.gaps, self.idle, self.device, self.earlier_work
        )

    @cached_property
    def state(self) -> RecordingState | None:
        """The state of the recording (a cold start, a crop, ...) that hides what limits a steady step; None if it does
        not, or on a CPU-only run.
        """
        return find_state(self.quality) if self.has_gpu else None

    @cached_property
    def graph_origins(self) -> GraphOrigins:
        """The work that CUDA graphs replay, and the operators and lines that captured it."""
        return find_graph_origins(self.trace, self.slices, self.links, self.compilation)

    @cached_property
    def source_slices(self) -> I4:
        """The call behind each row of `trace.gpu`: the one that captured it into a CUDA graph if that is known, else
        its launch. A row of Slices; -1: unknown. Shape (len(trace.gpu),).
        """
        captured = self.graph_origins.launch_slice
        return np.where(captured >= 0, captured, self.links.launch_slice)

    @cached_property
    def compilation(self) -> Compilation | None:
        """What torch.compile did, from its log or from what `traceopt run` noted; None if neither was recorded, or
        nothing was compiled.
        """
        return self.companions.compile_log or self.captured.compilation

    @cached_property
    def compiled_pieces(self) -> CompiledPieces:
        """The pieces of compiled code that the steps run, and where those that follow a graph break are entered."""
        return find_compiled_pieces(self.regions, self.steps, self.compilation)

    @cached_property
    def graph_breaks(self) -> tuple[GraphBreak, ...]:
        """The graph breaks of torch.compile in code that the steps run; without a trace, all of them."""
        return breaks_in_steps(self.compilation, self.compiled_pieces.frames if self.has_trace else frozenset())
