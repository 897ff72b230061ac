"""CPU-only runs: treats the training thread as the device and splits its step by what the thread did."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, intersect, merge, subtract
from traceopt.analyzer.attribution.attribution import Attribution
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP
from traceopt.analyzer.timeline.host_activity import Host
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.table import (
    BACKWARD,
    COMMUNICATION,
    FORWARD,
    LAUNCH,
    MODEL_WORK,
    OPTIMIZER,
    PHASES,
    PYTHON,
    UNTRACED,
)


class CpuPhases(Attribution, frozen=True, dict=True):
    """Exclusive phases of the training thread inside the window; they sum to it."""

    host: Host
    regions: Regions

    @property
    def causes(self) -> tuple[Cause, ...]:
        return PHASES

    @cached_property
    def areas(self) -> dict[Cause, Intervals]:
        """When the thread was in each phase. If phases nest, the first one in the table owns the time."""
        thread, window, regions = self.steps.thread, self.steps.window, self.regions
        host = self.host.of_thread(thread)
        calls = regions.area(
            regions.named(op_names.is_collective_call, OP), thread
        )  # the thread may lose its core in one
        found = {phase: host[phase] for phase in PHASES if phase in host} | {
            OPTIMIZER: merge(regions.own_time(regions.optimizer, thread), regions.area(regions.zero_grad, thread)),
            BACKWARD: subtract(regions.area(regions.backward), calls),
            FORWARD: subtract(host[LAUNCH], calls),
            COMMUNICATION: merge(self.communication, calls),
            UNTRACED: window,
        }
        order = [(phase, found[phase]) for phase in PHASES]
        between_nodes = regions.area(regions.engine, thread)
        order.insert(PHASES.index(PYTHON), (BACKWARD, between_nodes))
        taken = EMPTY
        areas = dict.fromkeys(PHASES, EMPTY)
        for phase, area in order:
            mine = intersect(area, window)
            areas[phase] = merge(areas[phase], subtract(mine, taken))
            taken = merge(taken, mine)
        return areas

    @cached_property
    def communication(self) -> Intervals:
        """Collectives that run on the CPU (gloo, MPI). `nccl:` rows only launch GPU work."""
        return intersect(self.regions.area(self.collectives), self.steps.window)

    @cached_property
    def collectives(self) -> Mask:
        """The slices of those collectives. Shape (len(slices),)."""
        return self.regions.named(_runs_on_cpu, ANNOTATION, OP)

    @cached_property
    def by_step(self) -> I8:
        """Time by step and phase. Shape (steps, phases), ns."""
        return np.stack([self.steps.within(self.areas[phase]) for phase in PHASES], axis=1)

    @cached_property
    def model_work(self) -> Intervals:
        return merge(*(self.areas[phase] for phase in MODEL_WORK))


def _runs_on_cpu(name: str) -> bool:
    return op_names.is_collective_annotation(name) and name.startswith(("gloo:", "mpi:", "ucc:", "ccl:"))
