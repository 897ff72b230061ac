"""GPU starvation per step and its causes, and the bounds on savings that follow from it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.intervals import Intervals, complement, intersect, merge
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.stalls.idle import CAUSES
from traceopt.analyzer.vocabulary.host_activities import DISPATCH
from traceopt.result.finding import Saving


def saving(facts: Facts, low_ns: float, est_ns: float, high_ns: float, basis: str) -> Saving:
    """A saving in time per step, capped at the step and ordered low <= est <= high."""
    step = facts.step_ns
    est = min(max(0.0, est_ns), step)
    low = min(max(0.0, low_ns), est)
    high = min(max(est, high_ns), step)
    return Saving(
        round(low / 1e3, 3),
        round(est / 1e3, 3),
        round(high / 1e3, 3),
        round(est / step, 6) if step else 0.0,
        basis,
    )


def starved_ns(facts: Facts, *causes: str) -> float:
    """GPU starvation from these causes (all if none is given) in the typical step."""
    wanted = causes or tuple(cause for cause in CAUSES if cause != "queued")
    return facts.idle.typical_ns(*wanted)


def dispatch_amount(facts: Facts) -> npt.NDArray[np.int64]:
    """How much of each idle gap is due to dispatch: operators, launch calls, and Python between them in short gaps.

    Shape (len(gaps),), ns.
    """
    return sum((facts.idle.of_gaps(cause) for cause in DISPATCH), np.zeros(len(facts.gaps), np.int64))


def dispatch_area(facts: Facts) -> Intervals:
    """When the host does its ordinary work: the whole window except waits, long work that starves the GPU, and
    activities that other rules cover.
    """
    other = merge(*(area for name, area in facts.flow_areas.items() if name not in DISPATCH))
    return complement(other, *facts.recorded_steps.host_span)


def dispatch_ns(facts: Facts) -> float:
    """Dispatch starvation in the typical step."""
    return float(dispatch_amount(facts).sum()) / facts.steps.count


def host_bounds(
    facts: Facts, area: Intervals, removed_share: float, gpu_ns: tuple[float, float] = (0.0, 0.0)
) -> tuple[float, float, float]:
    """How much shortening host work saves: low, expected and at most, ns per step.

    The low end is the time in which the GPU starved during this work. The others are all of the work, capped at the
    starvation of the whole step. `gpu_ns`: GPU time per step saved along with the launches, expected and at most.
    """
    host_ns = facts.steps.host_mean_ns(area) * removed_share
    if not facts.has_gpu:
        return 0.8 * host_ns, host_ns, host_ns
    starving = intersect(area, facts.gaps.starved)
    low = facts.steps.mean_ns(starving) * removed_share
    high = max(low, min(host_ns, starved_ns(facts)))
    return low, high + gpu_ns[0], high + gpu_ns[1]


def typical_ns(facts: Facts, times: npt.NDArray[np.int64], amount: npt.NDArray[np.int64]) -> float:
    """Amounts of calls that began at these times, ns of the typical step."""
    return float(amount[facts.steps.host_window.contains(times)].sum()) / facts.steps.count


def launched_ns(facts: Facts, work: npt.NDArray[np.bool_] | npt.NDArray[np.float64]) -> float:
    """GPU time per step of work that the steps launched, whenever it ran: the GPU may lag by several steps. `work` is a
    mask, or the share of each row that counts.
    """
    launch = facts.links.launch_slice[facts.gpu.rows]
    at = facts.slices.start[np.maximum(launch, 0)] if len(facts.slices) else np.zeros(len(launch), np.int64)
    inside = (launch >= 0) & facts.steps.host_window.contains(at)
    return float((facts.gpu.work.duration * work)[inside].sum()) / facts.steps.count
