"""GPU starvation per step and its causes, and the bounds on savings that follow from it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.intervals import Intervals, complement, intersect, merge, subtract
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.table import DISPATCH, IDLE_CAUSES, QUEUED
from traceopt.analyzer.vocabulary.torch_compile import is_compiled_lookup
from traceopt.result.finding import Confidence
from traceopt.rules.savings.known_error import known_error, saving_of_step
from traceopt.rules.savings.price import Price

FEW_STEPS = 5  # with fewer steps, a longer one shifts their mean
UNEVEN = 0.25  # of the mean step: a larger range of few steps makes their mean unsure


def saving(facts: Facts, low_ns: float, est_ns: float, high_ns: float, basis: str) -> Price:
    """A saving in time per step, never all of the step. Its range is at least as wide as the known error. Nothing where
    the step mostly waits for requests: faster, it waits as much longer.
    """
    if facts.may_wait_for_requests:
        low_ns = est_ns = high_ns = 0.0
    return saving_of_step(facts.step_ns, low_ns, est_ns, high_ns, basis, known_error(facts.has_gpu))


def starved_ns(facts: Facts, *causes: Cause) -> float:
    """GPU starvation from these causes (all if none is given) in the typical step."""
    wanted = causes or tuple(cause for cause in IDLE_CAUSES if cause is not QUEUED)
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
    other = merge(*(area for cause, area in facts.flow_areas.items() if cause not in DISPATCH))
    return complement(other, *facts.recorded_steps.host_span)


def dispatch_ns(facts: Facts) -> float:
    """Dispatch starvation in the typical step."""
    return float(dispatch_amount(facts).sum()) / facts.steps.count


def passes_area(facts: Facts) -> Intervals:
    """When the host does the ordinary work of the forward and backward passes, which compiling or capturing the model
    can cover: not the optimizer's, not that of `zero_grad`, not copies of inputs to the device, and not Dynamo's
    look-ups of compiled code.
    """
    regions, thread = facts.regions, facts.steps.thread
    updates = merge(regions.own_time(regions.optimizer, thread), regions.area(regions.zero_grad, thread))
    lookups = regions.area(regions.named(is_compiled_lookup, OP, ANNOTATION), thread)
    inputs = [facts.links.op_slice[copy.rows] for copy in facts.copies if copy.kind.startswith("HtoD")]
    copies = merge(*(facts.slices.area_of(copying[copying >= 0]) for copying in inputs))
    return subtract(dispatch_area(facts), merge(updates, lookups, copies))


def passes_amount(facts: Facts) -> npt.NDArray[np.int64]:
    """How much of each idle gap is due to dispatch in the forward and backward passes. Shape (len(gaps),), ns."""
    gaps, amount = facts.gaps, dispatch_amount(facts)
    passes, whole = (area.within(gaps.start, gaps.starved_end) for area in (passes_area(facts), dispatch_area(facts)))
    return np.where(passes < whole, amount * passes // np.maximum(whole, 1), amount)


def passes_ns(facts: Facts) -> float:
    """Dispatch starvation of the forward and backward passes in the typical step."""
    return float(passes_amount(facts).sum()) / facts.steps.count


def launch_confidence(facts: Facts) -> Confidence:
    """How sure the GPU's wait for launches is: less if recording Python frames slowed the host by an unknown amount, or
    if the few steps differ.
    """
    inflated = facts.frames_recorded_with_times and not facts.captured.profiler_ns
    duration = facts.steps.duration
    uneven = 1 < len(duration) < FEW_STEPS and np.ptp(duration) > UNEVEN * duration.mean()
    return "low" if inflated and uneven else "medium" if inflated or uneven else "high"


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
    """GPU time per step of `launched_in_steps`. `work` is a mask, or the share of each row that counts."""
    time_ns = facts.gpu.work.duration * facts.gpu.own_share * work
    return float(time_ns[launched_in_steps(facts)].sum()) / facts.steps.count


def launched_in_steps(facts: Facts) -> npt.NDArray[np.bool_]:
    """The GPU work that the steps launched, whenever it ran: the GPU may lag by several steps."""
    launch = facts.links.launch_slice
    at = facts.slices.start[np.maximum(launch, 0)] if len(facts.slices) else np.zeros(len(launch), np.int64)
    return np.asarray((launch >= 0) & facts.steps.host_window.contains(at))
