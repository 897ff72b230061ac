"""Facts of the recording itself: what the file holds, and what `traceopt run` or torch.compile noted in it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from traceopt.analyzer.companions.companions import Companions
from traceopt.analyzer.companions.gpu_samples.samples import GpuSamples
from traceopt.analyzer.companions.gpu_samples.trace_counters import find_trace_samples
from traceopt.analyzer.run_log.constructions import find_framework
from traceopt.analyzer.run_log.memory_growth import MemoryOverRun, find_memory_over_run
from traceopt.analyzer.run_log.regular_steps import RegularSteps, find_regular_steps
from traceopt.analyzer.run_log.run_settings import Captured, captured
from traceopt.analyzer.run_log.step_drift import Drift, find_drift
from traceopt.analyzer.tables.compilation import Compilation
from traceopt.analyzer.tables.counter_ranges import CounterRanges
from traceopt.analyzer.tables.trace import TimeFault, Trace
from traceopt.analyzer.timeline.serving import find_engine
from traceopt.analyzer.vocabulary.phases.serving_steps import Engine
from traceopt.analyzer.vocabulary.training_frameworks import TrainingFramework
from traceopt.analyzer.work.throughput import Workload


class RecordingFacts(Struct, frozen=True, dict=True):
    """What all facts are computed from. `device_overrides` corrects or extends the peak table (see
    accelerator_lookup.find); `workload` says what the run processes per step, `companions` what the files beside the
    trace say.
    """

    trace: Trace
    device_overrides: Mapping[str, Mapping[str, Any]] = {}
    workload: Workload = field(default_factory=Workload)
    companions: Companions = field(default_factory=Companions)
    every_step: bool = False

    @property
    def has_trace(self) -> bool:
        """There is a trace, and not only files that are recorded beside one."""
        return self.trace.meta.event_count > 0

    @property
    def from_nsight(self) -> bool:
        """Whether the trace is an export of Nsight Systems."""
        return isinstance(self.trace.meta.header.get("nsight"), dict)

    @property
    def counter_ranges(self) -> tuple[CounterRanges, ...]:
        """What CUPTI's range profiler counted, by kernel and metric; the times of such a file are not real."""
        return self.trace.counter_ranges

    @property
    def time_faults(self) -> tuple[TimeFault, ...]:
        """Times that cannot be, in the file and in the detail cycle that was joined to it."""
        meta = self.trace.meta
        return meta.time_faults + (meta.detail.time_faults if meta.detail is not None else ())

    @property
    def times_hold(self) -> bool:
        """Whether times that cannot be were all corrected. If not, nothing that rests on times is said."""
        return all(fault.mended for fault in self.time_faults)

    @cached_property
    def gpu_samples(self) -> GpuSamples | None:
        """Clocks, power and temperature of the GPUs, by a file beside the trace, else by counters in it; None if
        neither was recorded.
        """
        return self.companions.gpu_samples or find_trace_samples(self.trace)

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
    def training_framework(self) -> TrainingFramework | None:
        """The framework that runs the training loop, by its Python frames, else by its recorded settings."""
        return find_framework(self.trace, self.captured.frameworks)

    @cached_property
    def compilation(self) -> Compilation | None:
        """What torch.compile did, from its log or from what `traceopt run` noted; None if neither was recorded, or
        nothing was compiled.
        """
        return self.companions.compile_log or self.captured.compilation

    @cached_property
    def serving_engine(self) -> Engine | None:
        """The engine that serves the model, by its step annotations or Python frames; None if there is none."""
        return find_engine(self.trace)
