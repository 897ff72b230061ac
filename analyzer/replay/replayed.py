"""How long the steps take after a change, and how far the replay can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.replay.changes import Change, apply_all
from traceopt.analyzer.replay.graph import Graph, Rows
from traceopt.analyzer.replay.retime import StepTimes, Timing, retime, step_times
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.steps import Steps

MAX_ERROR_SHARE = 0.05  # a replay that misses the recorded steps by more is not trusted
MIN_STEPS = 3  # with fewer steps they are replayed twice, and the second round counts


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
        """Duration of a step: the mean of those that are typical as recorded."""
        return max(1.0, float(self.per_step_ns[self.graph.typical].mean()))


def replay(graph: Graph, steps: Steps, changes: Sequence[Change] = ()) -> Replayed:
    """Replays all recorded steps in sequence with the changes applied, so that a lead of the host carries over."""
    rows = apply_all(graph, changes)
    rounds = 1 if steps.count >= MIN_STEPS else 2
    return Replayed(changes, graph, rows, rounds, step_times(graph, rows, rounds))


class ReplayError(Struct, frozen=True):
    """Error of a replay without a change. `missed_share` is the error of the recorded steps (median);
    `unexplained_share` is the share of step time by which work started later than the graph explains.
    """

    missed_share: float
    unexplained_share: float

    @property
    def share(self) -> float:
        """The larger of the two: either makes a prediction wrong."""
        return max(self.missed_share, self.unexplained_share)


def replay_error(graph: Graph, steps: Steps, has_gpu: bool) -> ReplayError | None:
    """Error of a replay without a change; None if no launch of the device's work is in the file, so that nothing can be
    replayed.
    """
    if has_gpu and graph.fixed == (graph.work >= 0).sum():
        return None
    measured = np.maximum(steps.host_end - steps.host_start, 1)
    replayed = np.diff(step_times(graph, graph.rows).host)
    missed = median(np.abs(replayed - measured) / measured)
    return ReplayError(missed, float(graph.unexplained.sum()) / steps.window_ns)
