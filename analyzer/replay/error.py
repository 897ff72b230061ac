"""How far a replay of the recorded steps can be trusted: measures that grow if the graph misses a wait or a lag."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import group_rows
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.replay.graph import HOST, Graph, Rows
from traceopt.analyzer.replay.queues import EARLY
from traceopt.analyzer.replay.retime import step_times
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.steps import Steps

MAX_ERROR_SHARE = 0.05  # a replay that is further off is not trusted
MIN_ALIKE = 3  # with fewer steps that launch the same work, none can be predicted from the others


class Prediction(Struct, frozen=True):
    """How well the typical steps are predicted, each from the others; shares of the mean step, median over the steps.

    The work of the host between its calls and the durations of the kernels come from the step itself; what calls cost,
    lags and dependencies come from the other steps. `usual_share` is the error of predicting "as long as the others".
    """

    steps: int
    error_share: float
    usual_share: float

    @property
    def excess_share(self) -> float:
        """How much worse the prediction is than "as long as the others"; 0 if it is better."""
        return max(0.0, self.error_share - self.usual_share)


class ReplayError(Struct, frozen=True):
    """How far the replay is off, as shares of step time.

    `missed_share`: the replayed typical step, from completion to completion, against the measured one.
    `unexplained_share`: by how much work started later than the graph explains; the replay does not repeat it.
    `blocked_share`: how long the host was in calls that can wait, longer than they take by themselves, though no work
    in the file explains it; the replay keeps this as work of the host.
    """

    missed_share: float
    unexplained_share: float
    blocked_share: float
    prediction: Prediction | None  # None: too few typical steps launch the same work

    @property
    def steps_share(self) -> float:
        """How wrong the replayed steps are; unexplained delays count where no step can be predicted from the others."""
        predicted = self.prediction.excess_share if self.prediction is not None else self.unexplained_share
        return max(self.missed_share, predicted)

    @property
    def share(self) -> float:
        """The largest error."""
        return max(self.steps_share, self.blocked_share)


def replay_error(graph: Graph, steps: Steps, has_gpu: bool) -> ReplayError | None:
    """Error of a replay without a change; None if no launch of the device's work is in the file, so that nothing can be
    replayed.
    """
    if has_gpu and not len(graph.changeable):
        return None
    measured = steps.duration[graph.typical]
    replayed = step_times(graph, graph.rows).per_step_ns[graph.typical]
    return ReplayError(
        missed_share=abs(float(replayed.sum() / measured.sum()) - 1),
        unexplained_share=float(graph.unexplained.sum()) / steps.window_ns,
        blocked_share=graph.blocked_ns / steps.window_ns,
        prediction=_prediction(graph, steps),
    )


def _prediction(graph: Graph, steps: Steps) -> Prediction | None:
    step = np.searchsorted(graph.borders, np.arange(len(graph.rows))) - 1
    alike = _alike(graph)
    if len(alike) < MIN_ALIKE or not (graph.work >= 0).any():  # on the host alone, steps share nothing to predict from
        return None
    measured = steps.duration[alike].astype(np.float64)
    predicted = step_times(graph, _from_the_others(graph, step, alike)).per_step_ns[alike]
    others = [median(np.delete(measured, step)) for step in range(len(measured))]
    return Prediction(
        len(alike),
        median(np.abs(predicted - measured)) / float(measured.mean()),
        median(np.abs(others - measured)) / float(measured.mean()),
    )


def _alike(graph: Graph) -> I8:
    """The typical steps that launch the most common sequence of work, told by its streams."""
    sequences: dict[bytes, list[int]] = {}
    for one in graph.typical.tolist():
        stream = graph.rows.stream[graph.borders[one] + 1 : graph.borders[one + 1]]
        sequences.setdefault(stream[stream != HOST].tobytes(), []).append(one)
    return np.array(max(sequences.values(), key=len))


def _from_the_others(graph: Graph, step: I8, alike: I8) -> Rows:
    """The rows, with the costs of calls, lags and waits of these steps taken from the others of them: the mean over the
    rows at the same place.
    """
    rows, index = graph.rows, np.arange(len(graph.rows))
    is_work = rows.stream != HOST
    starts = is_work.copy()
    starts[graph.borders] = True
    launched = np.cumsum(is_work)
    mine = np.flatnonzero(np.isin(step, alike))
    nth = launched[mine] - launched[graph.borders[step[mine]]]  # piece of work of the step
    since = (index - np.maximum.accumulate(np.where(starts, index, 0)))[mine]  # rows of waits after it
    _, place = group_rows(nth, since, is_work[mine].astype(np.int8))

    def others(values: I8) -> I8:
        own = values[mine].astype(np.float64)
        known = own > EARLY / 2
        total, count = np.bincount(place, np.where(known, own, 0)), np.bincount(place, known)
        mean = (total[place] - own) / np.maximum(count[place] - 1, 1)
        out: I8 = values.copy()
        out[mine] = np.rint(np.where(known & (count[place] > 1), mean, own))
        return out

    return replace(
        rows,
        host=rows.host - graph.call_cost + others(graph.call_cost),
        latency=others(rows.latency),
        lead=others(rows.lead),
        wake=others(rows.wake),
    )
