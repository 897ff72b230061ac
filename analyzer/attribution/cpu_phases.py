"""CPU-only runs: treats the training thread as the device and splits its step by what the thread did."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, intersect, merge, subtract
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP
from traceopt.analyzer.timeline.host_activity import Host
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names

# Name, label, is it model work? If phases nest, the first one owns the time.
PHASES = (
    ("loader_startup", "Starting data loader workers", False),
    ("data_loading", "Waiting for data", False),
    ("checkpoint", "Saving a checkpoint", False),
    ("logging", "Logging", False),
    ("gc", "Garbage collection", False),
    ("compile", "Compiling", False),
    ("post_processing", "Post-processing", False),
    ("input_work", "Preprocessing outside the loader", False),
    ("program", "Running other programs", False),
    ("sleep", "Sleeping", False),
    ("thread_wait", "Waiting for another thread", False),
    ("optimizer", "Optimizer", True),
    ("backward", "Backward", True),
    ("forward", "Forward and other operators", True),
    ("communication", "Waiting for communication", True),
    ("python", "Other Python", False),
    ("untraced", "Untraced", False),
)
PHASE_NAMES = tuple(name for name, _, _ in PHASES)
MODEL_WORK = tuple(name for name, _, busy in PHASES if busy and name != "communication")


class CpuPhases(Struct, frozen=True, dict=True):
    """Exclusive phases of the training thread inside the window; they sum to it."""

    host: Host
    regions: Regions
    steps: Steps

    @cached_property
    def areas(self) -> dict[str, Intervals]:
        window = self.steps.window
        thread = self.steps.thread
        host = self.host.of_thread(thread)
        regions = self.regions
        calls = regions.area(
            regions.named(op_names.is_collective_call, OP), thread
        )  # the thread may lose its core in one
        raw = {
            "loader_startup": host["loader_startup"],
            "data_loading": host["data_loading"],
            "checkpoint": host["checkpoint"],
            "logging": host["logging"],
            "gc": host["gc"],
            "compile": host["compile"],
            "post_processing": host["post_processing"],
            "input_work": host["input_work"],
            "program": host["program"],
            "sleep": host["sleep"],
            "thread_wait": host["thread_wait"],
            "optimizer": merge(regions.own_time(regions.optimizer, thread), regions.area(regions.zero_grad, thread)),
            "backward": subtract(regions.area(regions.backward), calls),
            "forward": subtract(host["launch"], calls),
            "communication": merge(self.communication, calls),
            "engine": regions.area(regions.engine, thread),
            "python": host["python"],
        }
        taken = EMPTY
        areas = {}
        for name, area in raw.items():
            mine = intersect(area, window)
            areas[name] = subtract(mine, taken)
            taken = merge(taken, mine)
        areas["backward"] = merge(areas["backward"], areas.pop("engine"))  # the time between its nodes
        areas["untraced"] = subtract(window, taken)
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
        return np.stack([self.steps.within(self.areas[name]) for name in PHASE_NAMES], axis=1)

    def total_ns(self, phase: str) -> int:
        return self.areas[phase].total if phase in self.areas else 0

    def typical_ns(self, *phases: str) -> float:
        """Time of the phases per step."""
        return sum(self.total_ns(phase) for phase in phases) / self.steps.count

    @cached_property
    def model_work(self) -> Intervals:
        return merge(*(self.areas[name] for name in MODEL_WORK))


def _runs_on_cpu(name: str) -> bool:
    return op_names.is_collective_annotation(name) and name.startswith(("gloo:", "mpi:", "ucc:", "ccl:"))
