"""Facts of the timeline: the steps, the GPU work in them, what launched it, and which line of code."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import NameTotal, distinct_values, totals_by_name
from traceopt.analyzer.arrays.intervals import Intervals
from traceopt.analyzer.communication.copy_collectives import copy_collectives
from traceopt.analyzer.cuda_graphs.graph_origins import GraphOrigins, find_graph_origins
from traceopt.analyzer.cuda_graphs.launch_repetition import Repetition, find_repetition
from traceopt.analyzer.facts.recording import RecordingFacts
from traceopt.analyzer.rates.known_rates import KnownRates, known_rates
from traceopt.analyzer.tables.schema import I4, I8
from traceopt.analyzer.timeline.call_sites import CallSites
from traceopt.analyzer.timeline.call_tree import Slices, build_slices
from traceopt.analyzer.timeline.device import TraceDevice, find_device
from traceopt.analyzer.timeline.earlier_work import find_earlier_work
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.kernel_launches import KernelLaunches
from traceopt.analyzer.timeline.launch_calls import LaunchCalls
from traceopt.analyzer.timeline.launch_links import LaunchLinks, launch_times, link
from traceopt.analyzer.timeline.marks.marks import Marks, find_marks, outlasted, whole_trace, without_empty_end
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.serving import Serving, find_serving
from traceopt.analyzer.timeline.steps import Steps, cut_by_the_profiler, find_steps
from traceopt.analyzer.vocabulary.kernels.kernel_names import is_gradient
from traceopt.analyzer.vocabulary.op_names import is_double_backward
from traceopt.result.experiments import Compared, Comparison
from traceopt.result.trial import Attempt, Machine

if TYPE_CHECKING:
    from typing_extensions import Self


_SAME_FOR_ALL_STEPS = ("slices", "links", "call_sites", "marks", "earlier_work", "recorded_steps")


class TimelineFacts(RecordingFacts, frozen=True, dict=True):
    """The steps, the GPU work in them, what launched it, and which line of code."""

    @cached_property
    def marks(self) -> Marks:
        """What marks the steps on the main thread: the profiler, what repeats in the training loop, or nothing."""
        return find_marks(self.trace)

    @cached_property
    def slices(self) -> Slices:
        """The call tree of the CPU threads: operators, annotations, runtime calls, Python frames."""
        return build_slices(self.trace)

    @cached_property
    def links(self) -> LaunchLinks:
        """Which call launched each row of GPU work, and the operator around that call."""
        return link(self.trace, self.slices)

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
        work, launch = self.trace.gpu, self.links.launch
        launched = launch_times(work, launch, runtime)
        if len(launch) and launch.max() < 0 and outlasted(marks, work.start, work.end):
            marks = whole_trace(self.trace)  # nothing shows to which of the marks the work belongs
        started = launched if len(runtime) else self.trace.ops.start
        steps = find_steps(without_empty_end(marks, started), launched, work.end, self.earlier_work)
        return replace(steps, cut=cut_by_the_profiler(steps, self.trace.ops, work))

    @cached_property
    def steps(self) -> Steps:
        """The typical steps, over which all other facts are averaged: where each begins and ends, and the thread of the
        training loop.
        """
        return self.recorded_steps if self.every_step else self.recorded_steps.typical

    @cached_property
    def of_every_step(self) -> Self:
        """The facts of all recorded steps, for what happens in unusual steps."""
        if self.steps is self.recorded_steps:
            return self
        facts = type(self)(self.trace, self.device_overrides, self.workload, self.companions, every_step=True)
        vars(facts).update({name: getattr(self, name) for name in _SAME_FOR_ALL_STEPS})
        return facts

    @property
    def has_step_marks(self) -> bool:
        """Whether the trace marks its steps. If not, the whole recording counts as one step."""
        return self.steps.source != "window"

    @property
    def step_ns(self) -> float:
        """The mean of the typical steps, in ns."""
        return self.steps.window_ns / self.steps.count

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
        """The device: name, vendor, architecture, and peak rates if they are known; or what all GPUs have in common."""
        run = self.captured
        return find_device(self.trace, self.gpu.devices, self.device_overrides, run.trained_on, run.environment.gpus)

    @cached_property
    def compared(self) -> Mapping[Comparison, Compared]:
        """What was measured on the device of this run; on a CPU, with as many threads as in the run."""
        rates, environment = self.companions.measured_rates, self.captured.environment
        if rates is None:
            return {}
        return (
            rates.of(self.device.name, None) if self.has_gpu else rates.of(environment.cpu.model, environment.threads)
        )

    @cached_property
    def machine(self) -> Machine | None:
        """The machine of the run; None if it was not recorded."""
        here = self.captured.environment
        if here.cpu.model is None or here.cpu_count is None:
            return None
        gpu, threads = (self.device.name, None) if self.has_gpu else (None, here.threads)
        return Machine(gpu, here.cpu.model, here.cpu_count, threads)

    @cached_property
    def tried_here(self) -> list[Attempt]:
        """What was predicted and measured on the machine of this run, the latest last."""
        return [
            trial for trial in self.companions.trials if trial.machine is not None and trial.machine == self.machine
        ]

    @cached_property
    def rates(self) -> KnownRates | None:
        """What work took on other devices of this kind; None if nobody has measured them."""
        return known_rates(self.device.name) if self.has_gpu else None

    @cached_property
    def has_gpu(self) -> bool:
        """There is GPU work inside the window, on a supported device."""
        return self.gpu.busy.total > 0 and self.device.unsupported is None

    @cached_property
    def regions(self) -> Regions:
        """Named parts of the program: forward, backward, optimizer, zero_grad, attention."""
        return Regions(self.trace, self.slices, self.links, self.gpu)

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
        """The GPU work of a mask inside the window, by kernel name, with its time in the window, ns. Longest first."""
        rows = np.flatnonzero(mask & self.gpu.is_inside)
        return totals_by_name(self.trace.names, self.gpu.work.name[rows], rows, self.gpu.step_ns[rows])

    @cached_property
    def serving(self) -> Serving | None:
        """Steps of a serving engine by phase (prefill, decode): number, time, tokens; None for other steps."""
        return find_serving(self.trace, self.recorded_steps.host_start, self.recorded_steps.duration)

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
    def differentiates_twice(self) -> bool:
        """Whether gradients are differentiated again, as by a gradient penalty."""
        return any(map(is_double_backward, self.trace.names))

    @cached_property
    def infers(self) -> bool:
        """A serving engine was seen, or operators were recorded and none of them trains. Kernels alone do not tell, so
        that a run may be known neither to train nor to infer.
        """
        return not self.trains and (self.serving is not None or len(self.trace.ops) > 0)

    @cached_property
    def graph_origins(self) -> GraphOrigins:
        """The work that CUDA graphs replay, and the operators and lines that captured it."""
        sites = self.companions.graph_stacks
        return find_graph_origins(self.trace, self.slices, self.links, self.compilation, sites)

    @cached_property
    def source_slices(self) -> I4:
        """The call behind each row of `trace.gpu`: the one that captured it into a CUDA graph if that is known, else
        its launch. A row of Slices; -1: unknown. Shape (len(trace.gpu),).
        """
        captured = self.graph_origins.launch_slice
        return np.where(captured >= 0, captured, self.links.launch_slice)

    def sites_of_work(self, rows: npt.NDArray[np.integer]) -> I4:
        """Call site of each of these rows of `trace.gpu`: of its launch stack, else of its source slice. Indices into
        `call_sites.sites`; -1: unknown. Shape (len(rows),).
        """
        sites, launched_at = self.call_sites.of(self.source_slices[rows]), self.graph_origins.launched_at
        if launched_at:
            stacks = np.array([self.call_sites.add(launched_at.get(row)) for row in rows.tolist()], np.int32)
            sites = np.where(stacks >= 0, stacks, sites)
        return sites

    @cached_property
    def repetition(self) -> Repetition:
        """Whether every step launches the same kernels in the same order."""
        return find_repetition(self.trace, self.gpu, self.links, self.steps)

    @cached_property
    def compiled_share(self) -> float:
        """Share (0..1) of the kernels in the window that torch.compile generated, or that its code launched; without
        collectives and the optimizer's.
        """
        updates = self.regions.update_work | self.regions.work_under(self.regions.zero_grad)
        kernels = self.gpu.is_compute & self.gpu.is_inside & ~updates
        return float((self.regions.compiled_work & kernels).sum() / max(1, kernels.sum()))
