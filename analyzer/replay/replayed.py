"""How long the steps take after a change."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct

from traceopt.analyzer.replay.changes import Change, apply_all
from traceopt.analyzer.replay.graph import Graph, Rows
from traceopt.analyzer.replay.retime import StepTimes, Timing, retime, step_times
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.steps import Steps

# With fewer steps they are replayed twice, and the second round counts: the first begins in the state of the recording,
# where a host that a change lets run ahead is not ahead yet.
MIN_STEPS = 6


class Replayed(Struct, frozen=True, dict=True):
    """The steps of a trace after some changes.

    A step is complete when the host has reached its end and the device has done all work issued until then. Its
    duration is the time since the previous step was complete. If the host waits for the device in every step, this is
    the host's step. If the host runs ahead, host and device may progress at different rates until the queue is full;
    the slower one determines the throughput, and completion follows it.
    """

    changes: Sequence[Change]
    graph: Graph
    rows: Rows
    rounds: int
    step_times: StepTimes

    @cached_property
    def timing(self) -> Timing:
        """When everything happened."""
        return self.step_times if isinstance(self.step_times, Timing) else retime(self.graph, self.rows, self.rounds)

    @property
    def per_step_ns(self) -> I8:
        """Duration of each step. Shape (steps,)."""
        return self.step_times.per_step_ns

    @property
    def step_ns(self) -> float:
        """Duration of a step: the mean of the typical ones after the first."""
        return max(1.0, float(self.per_step_ns[self.graph.settled].mean()))


def replay(graph: Graph, steps: Steps, changes: Sequence[Change] = ()) -> Replayed:
    """Replays all recorded steps in sequence with the changes applied, so that a lead of the host carries over."""
    rows = apply_all(graph, changes)
    rounds = 1 if steps.count >= MIN_STEPS else 2
    return Replayed(changes, graph, rows, rounds, step_times(graph, rows, rounds))
