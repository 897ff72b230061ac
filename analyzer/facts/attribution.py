"""Facts of attribution: why the GPU or the main thread waits, and what each thread did meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.grouping import NameTotal, numbered, split, totals_by_name
from traceopt.analyzer.arrays.intervals import Intervals, merge, union
from traceopt.analyzer.attribution.attribution import Attribution
from traceopt.analyzer.attribution.compiled_pieces import (
    CompiledPieces,
    breaks_by_frames,
    breaks_in_steps,
    find_compiled_pieces,
)
from traceopt.analyzer.attribution.cpu_phases import CpuPhases
from traceopt.analyzer.attribution.first_calls import first_fetches, first_launches, startup_calls, with_first_runs
from traceopt.analyzer.attribution.host_flow import CpuOperators, HostFlow
from traceopt.analyzer.attribution.idle import Gaps, Idle, attribute, find_gaps, graph_callbacks, slow_calls
from traceopt.analyzer.attribution.limits import MOSTLY_IDLE_SHARE, limit_of
from traceopt.analyzer.attribution.main_thread_calls import MainThreadCalls, main_thread_calls, waits_for_others
from traceopt.analyzer.attribution.rl_phases import PhaseMarks, RlPhase, find_phase_marks, find_rl_phases
from traceopt.analyzer.attribution.syncs import (
    Syncs,
    after_copies_to_host,
    after_unscaling,
    blocking_copies,
    find_syncs,
    of_copies_to_device,
)
from traceopt.analyzer.attribution.untraced_python import NO_UNTRACED_PYTHON, UntracedPython, find_untraced_python
from traceopt.analyzer.facts.timeline import TimelineFacts
from traceopt.analyzer.recording_state import RecordingState, find_state
from traceopt.analyzer.slow_steps import find_slow_step_function, kernels_per_step
from traceopt.analyzer.tables.compilation import GraphBreak
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP, PYTHON, RUNTIME
from traceopt.analyzer.timeline.host_activity import Host, cpu_optimizers, prepared_output, training_functions
from traceopt.analyzer.timeline.python_stretches import PythonStretches, python_stretches
from traceopt.analyzer.timeline.steps import unusual
from traceopt.analyzer.trace_quality import TraceQuality
from traceopt.analyzer.vocabulary import library_frames, op_names
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.host_names import (
    GRADIENT_FRAME,
    LOGGING_FRAME,
    PROFILER_FRAME,
    REPORTING_FUNCTION,
)
from traceopt.analyzer.vocabulary.causes.table import (
    CHECKPOINT,
    COMMUNICATION,
    COMPUTE,
    COPIES,
    CPU_OPTIMIZER,
    DATA_LOADING,
    HOST_SYNC,
    LOADER_STARTUP,
    LOGGING,
    MODULE_LOAD,
    PROFILER,
    STARTUP,
    THREAD_WAIT,
)
from traceopt.analyzer.vocabulary.causes.table import PYTHON as RUNNING_PYTHON
from traceopt.analyzer.vocabulary.python_frames import is_recorder
from traceopt.result.finding import Location


class AttributionFacts(TimelineFacts, frozen=True, dict=True):
    """Why the GPU or the main thread waits, and what each thread did meanwhile."""

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
    def untraced_python(self) -> UntracedPython:
        """Stretches of Python without any event on a launching thread, while the GPU starved. None where each garbage
        collection was recorded: what is left there is a loop without calls, which is Python like any other.
        """
        if self.captured.collections is not None:
            return NO_UNTRACED_PYTHON
        return find_untraced_python(self.slices, self.gaps, self.trace.names)

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
                PROFILER: calls[first_launches(self.trace)],
                MODULE_LOAD: calls[slow],
                STARTUP: calls[startup],
                LOADER_STARTUP: first_fetches(self.regions),
                LOGGING: prepared_output(self.regions),
                CPU_OPTIMIZER: cpu_optimizers(self.regions),
            },
        )

    @cached_property
    def host_flow(self) -> HostFlow:
        """What the threads that launch work did, from launch to launch: dispatch, and long work that is no dispatch."""
        launches = self.links.launch
        threads = self.trace.runtime.thread[launches[launches >= 0]]
        known, count = np.unique(threads, return_counts=True)
        busiest = known[np.argsort(-count, kind="stable")].tolist()
        untraced = union(self.untraced_python.start, self.untraced_python.end)
        ordered = tuple(dict.fromkeys((self.steps.thread, *busiest)))
        return HostFlow(self.host, self.regions, self.gaps, ordered, untraced)

    @property
    def cpu_operators(self) -> CpuOperators:
        """Operators that computed on the CPU while the GPU starved: rows of slices, cost, and when."""
        return self.host_flow.cpu_operators

    @cached_property
    def syncs(self) -> Syncs:
        """Every call that blocked the host on the GPU: why it is there, its wait, and the refill after it."""
        late_batches = self.regions.named(op_names.is_multiprocess_dataloader, ANNOTATION, OP)
        updates = self.slices.mask(self.host.rows_of(CPU_OPTIMIZER))
        return find_syncs(
            self.trace,
            self.slices,
            self.links,
            self.steps,
            self.gpu,
            self.gaps,
            self.host.rows_of(HOST_SYNC),
            self.earlier_work,
            self.regions.area(late_batches | updates, self.steps.thread),
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

    @cached_property
    def emptying_syncs(self) -> npt.NDArray[np.bool_]:
        """Syncs inside `torch.cuda.empty_cache()`, which waits for the GPU before it frees. Shape (len(syncs),)."""
        return self._syncs_below(library_frames.is_empty_cache_frame)

    @cached_property
    def checkpoint_syncs(self) -> npt.NDArray[np.bool_]:
        """Syncs of the copies that save a checkpoint. Shape (len(syncs),)."""
        saves = self.slices.mask(self.host.rows_of(CHECKPOINT))
        return np.asarray(self.slices.ancestor(self.syncs.slice, saves) >= 0)

    @cached_property
    def result_syncs(self) -> npt.NDArray[np.bool_]:
        """Syncs for results that are copied to the host without blocking. Shape (len(syncs),)."""
        return after_copies_to_host(self.trace, self.syncs, self.slices, self.links)

    def _syncs_below(self, frame: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        return np.asarray(self.slices.ancestor(self.syncs.slice, self.regions.named(frame, PYTHON)) >= 0)

    def python_stretches(self, area: Intervals) -> PythonStretches:
        """What the main thread runs in an area: the innermost slice at every time. Without the functions of the
        profiler and of `traceopt run`, and without its waits for the threads of autograd.
        """
        slices = self.slices
        found = python_stretches(slices, self.steps.thread, area, self.steps)
        profiler = slices.ancestor(found.rows, self.regions.named(PROFILER_FRAME, PYTHON)) >= 0
        recorder = slices.ancestor(found.rows, self.regions.named(is_recorder, PYTHON))
        profiler |= recorder > slices.ancestor(found.rows, self.call_sites.code_frames)  # hooks also call the program
        return found.take(~profiler & ~self.regions.named(library_frames.is_engine_frame, PYTHON)[found.rows])

    @cached_property
    def idle(self) -> Idle:
        """The idle time of the GPU by cause, per gap and per step."""
        callbacks = graph_callbacks(self.trace)
        copies = of_copies_to_device(self.slices, self.links, self.syncs)
        refill = merge(self.syncs.refill_area, self.gaps.between(copies, self.gpu.work.start))
        idle = attribute(self.gaps, self.host_flow.of, self.steps, refill, callbacks)
        return with_first_runs(idle, self.gpu.work.name)

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

    @cached_property
    def limit(self) -> Cause:
        """What limits the steps: a part in which the device works, or why it waits."""
        return limit_of({cause: float(times.sum()) for cause, times in self.parts_by_step.items()})

    @cached_property
    def slow_step_function(self) -> Location | None:
        """The function of the program that explains slow steps: it runs only in them. None if there is none."""
        slow = np.flatnonzero(unusual(self.recorded_steps.duration)[0])
        if not len(slow) or not self.call_sites.recorded:
            return None
        return find_slow_step_function(self.of_every_step.regions, self.call_sites, self.recorded_steps, slow)

    @cached_property
    def kernels_of_recorded_steps(self) -> I8:
        """How many kernels each recorded step runs. Shape (recorded_steps.count,)."""
        return kernels_per_step(self.of_every_step.gpu, self.recorded_steps)

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

    @cached_property
    def may_serve(self) -> bool:
        """Whether the run neither trains nor loads data, so that what it waits for may be requests."""
        return not self.trains and not len(self.host.rows_of(DATA_LOADING))

    @cached_property
    def may_wait_for_requests(self) -> bool:
        """Whether a run that may serve waits for another thread for most of the step: it may have nothing to do."""
        waits = self.main_thread_calls(THREAD_WAIT) if self.may_serve else None
        return waits is not None and waits.typical_ns(self.steps) >= MOSTLY_IDLE_SHARE * self.step_ns

    def sleeps_that_wait(self, calls: MainThreadCalls) -> Mask:
        """Which sleeps of the main thread poll for something, or are made by a library. Shape (len(calls),)."""
        return waits_for_others(self.slices, calls.rows, self.call_sites.code_frames)

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
    def compiled_pieces(self) -> CompiledPieces:
        """The pieces of compiled code that the steps run, and where those that follow a graph break are entered."""
        return find_compiled_pieces(self.regions, self.steps, self.compilation)

    @cached_property
    def graph_breaks(self) -> tuple[GraphBreak, ...]:
        """The graph breaks of torch.compile in code that the steps run; without a trace, all of them. Without a log,
        those that Python frames show.
        """
        if self.compilation is None:
            return breaks_by_frames(self.regions, self.steps) if self.has_trace else ()
        return breaks_in_steps(self.compilation, self.compiled_pieces.frames if self.has_trace else frozenset())

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
        return find_state(self.quality, self.of_every_step.quality) if self.has_gpu else None
