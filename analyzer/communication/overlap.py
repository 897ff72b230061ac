"""How much communication each step exposes, and how much compute is left to hide it."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import Intervals, subtract
from traceopt.analyzer.attribution.cpu_phases import CpuPhases
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary.causes.table import COMMUNICATION


class Overlap(Struct, frozen=True):
    """Arrays have shape (steps,), times in ns."""

    exposed_ns: I8  # communication that no compute overlaps
    free_compute_ns: I8  # compute that no collective overlaps
    hidden_share: float  # of all communication time, overlapped by compute

    @property
    def possible_ns(self) -> I8:
        """The most that overlap could hide: it puts exposed communication beside compute that is free."""
        return np.minimum(self.exposed_ns, self.free_compute_ns)

    @property
    def possible_share(self) -> float:
        """The same over all steps, as a share of the exposed time."""
        return float(self.possible_ns.sum() / max(1, self.exposed_ns.sum()))


def gpu_overlap(gpu: GpuWork, steps: Steps) -> Overlap:
    """Overlap on the device."""
    return _overlap(gpu.communication, gpu.exposed_communication, subtract(gpu.compute, gpu.communication), steps)


def cpu_overlap(phases: CpuPhases, steps: Steps) -> Overlap:
    """Overlap in a CPU-only run: the training thread can work on anything while collectives run on their thread."""
    free = subtract(steps.window, phases.communication)
    return _overlap(phases.communication, phases.areas[COMMUNICATION], free, steps)


def _overlap(all_of_it: Intervals, exposed: Intervals, free: Intervals, steps: Steps) -> Overlap:
    hidden = 1 - exposed.total / max(1, all_of_it.total)
    return Overlap(steps.within(exposed), steps.within(free), hidden)
