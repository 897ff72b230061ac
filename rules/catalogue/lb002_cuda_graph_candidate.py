"""LB002: every step launches the same kernels while the GPU waits, so a CUDA graph could replay them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.rules import (
    BLOCKING_COPY,
    DATA_DEPENDENT,
    EXPLICIT,
    I8,
    SCALAR_READ,
    Evidence,
    Facts,
    Findings,
    Fix,
    Intervals,
    Location,
    RemoveHost,
    Rule,
    by_site,
    dispatch_area,
    dispatch_ns,
    each_step,
    intersect,
    merge,
    ms,
    percent,
    priced,
    rate,
    site_locations,
    subtract,
    the_step,
    threshold,
    times,
)
from traceopt.rules.advice.compilation import compiled, engine_graphs

MOST_LAUNCHES = 0.8  # of the main thread's launches: the innermost function with this share runs the step
EDGE = 0.05  # of a step's kernels: earlier and later events are at the step's edge, outside a capture
BLOCKERS = {
    SCALAR_READ: "reads single values from the GPU",
    DATA_DEPENDENT: "has operators whose size depends on the data",
    BLOCKING_COPY: "copies tensors to the host",
    EXPLICIT: "synchronizes",
}


class CudaGraphCandidate(Rule):
    """Measures how long the GPU waits for launches in steps that all launch the same kernels, with the same grids, in
    the same order. The finding lists what blocks a capture of such a step: syncs and driver allocations.

    Why it costs: the host repeats the same thousand launches in every step, about ten microseconds each. A graph
    replays them with one call.

    How to fix: let the compiler record the graph, or capture the step by hand.

        model = torch.compile(model, mode="reduce-overhead")

        model = torch.cuda.make_graphed_callables(model, (sample,))   # forward and backward as graphs

    The printed code captures the forward and backward passes, so the estimate leaves out the launches of the optimizer
    and of `zero_grad`. At most, they are captured too. Everything inside the graph must stay on the GPU. Read the loss
    outside it, and keep shapes and addresses fixed (static input tensors, a capturable optimizer).

    When it is wrong: kernels in a graph cannot use values that change from step to step (a learning rate as a Python
    number, random states). LB001 prices the same idle time with all remedies; the two share their cause.

    Sources: PyTorch, "Accelerating PyTorch with CUDA Graphs"; PyTorch documentation of torch.cuda.CUDAGraph,
    constraints.
    """

    code = "LB002"
    name = "cuda-graph-candidate"
    title = "Replay the step as a CUDA graph"
    family = "launch and dispatch"
    effort = "One line, then testing"
    risk = "Shapes must not change"
    requires = ("gpu", "whole", "launches")

    min_share: float = threshold(0.05, "smallest GPU wait for launches of a graph, as a share of the step, to report")
    min_steps: int = threshold(3, "fewest recorded steps needed to compare them")
    min_same: float = threshold(0.66, "smallest share of steps with the same kernels and grids")
    max_replayed: float = threshold(0.50, "largest share of kernels that graphs already launch")
    removable: float = threshold(0.85, "share of the launch time that a graph removes, expected")
    removable_blocked: float = threshold(0.5, "the same if something must first be moved out of the step")

    def applies(self, facts: Facts) -> str | None:
        if not facts.has_step_marks or facts.steps.count < self.min_steps:
            return "Too few steps were recorded to see whether they repeat."
        if facts.repetition.replayed_share > self.max_replayed:
            return f"Graphs already launch {percent(facts.repetition.replayed_share)} of the kernels."
        return None

    def check(self, facts: Facts) -> Findings:
        starved, same = dispatch_ns(facts), facts.repetition
        dispatch, captured = dispatch_area(facts), _captured_area(facts)
        part = _starved_share(facts, captured, dispatch)
        if part * starved < self.min_share * facts.step_ns or same.same_share < self.min_same or not same.kernels:
            return
        blockers, evidence = _blockers(facts)
        removable = self.removable_blocked if blockers else self.removable
        blocked = f" First remove what blocks the capture: the step {' and '.join(blockers)}." if blockers else ""
        in_passes = f", {ms(part * starved)} of it in the forward and backward passes" if part < 1 else ""
        yield self.finding(
            title="Replay the forward and backward passes as CUDA graphs" if facts.trains else None,
            why=(
                f"The GPU waits {ms(starved)} of {each_step(facts)} for launches{in_passes}. "
                f"{percent(same.same_share)} of the steps launch the same {same.kernels:,.0f} kernels in the same "
                f"order.{blocked}"
            ),
            saving=priced(
                facts,
                (0.5 * removable * part * starved, part * starved, starved),
                [RemoveHost(captured, removable)],
                f"Assumes launch time drops by {percent(removable)}; replaying a graph takes one launch."
                + (" At most, the optimizer is captured too." if part < 1 else ""),
                low=[RemoveHost(captured, 0.5 * removable)],
                high=[RemoveHost(dispatch)],
            ),
            evidence=[
                Evidence("Kernels launched in every step", calls_per_step=same.kernels),
                *evidence,
            ],
            locations=_holder(facts),
            fix=_fix(facts),
            confidence="medium" if blockers else "high",
            shares_cause_with=["LB001"],
        )

    def passed(self, facts: Facts) -> str:
        same = facts.repetition
        part = _starved_share(facts, _captured_area(facts), dispatch_area(facts))
        starved = percent(part * dispatch_ns(facts) / facts.step_ns)
        where = " in the forward and backward passes" if part < 1 else ""
        if same.same_share < self.min_same <= same.same_names_share:
            kernels = "The steps launch the same kernels with different grids"
        else:
            kernels = f"{percent(same.same_share)} of the steps launch the same kernels"
        return f"{kernels}; the GPU waits for launches{where} for {starved} of {the_step(facts)}."


def _fix(facts: Facts) -> Fix:
    if (engine := engine_graphs(facts)) is not None:
        return Fix(f"{engine}.")
    passes = "the forward and backward passes" if facts.trains else "the forward pass"
    how = "Pass mode='reduce-overhead' to torch.compile" if compiled(facts) else "Compile with CUDA graphs"
    whole = " A capture by hand can hold the whole step, with a capturable optimizer." if facts.trains else ""
    return Fix(f"{how}, or capture {passes}.{whole}", 'model = torch.compile(model, mode="reduce-overhead")')


def _captured_area(facts: Facts) -> Intervals:
    """When the host does ordinary work that the printed code puts into a graph: in training not the optimizer's."""
    if not facts.trains:
        return dispatch_area(facts)
    regions, thread = facts.regions, facts.steps.thread
    outside = merge(regions.own_time(regions.optimizer, thread), regions.area(regions.zero_grad, thread))
    return subtract(dispatch_area(facts), outside)


def _starved_share(facts: Facts, captured: Intervals, dispatch: Intervals) -> float:
    """Share (0..1) of the GPU's wait for launches that passes while the host does what a graph would hold."""
    inside, whole = (facts.steps.mean_ns(intersect(area, facts.gaps.starved)) for area in (captured, dispatch))
    return inside / whole if whole else 1.0


def _blockers(facts: Facts) -> tuple[list[str], list[Evidence]]:
    """What blocks a capture, in words and with its locations. Events at a step's edge stay outside the capture."""
    syncs, count = facts.syncs, facts.steps.count
    amid = _amid_launches(facts, syncs.start)
    words, evidence = [], []
    for reason, text in BLOCKERS.items():
        rows = np.flatnonzero((syncs.reason == reason) & amid)
        if len(rows) < count:  # not in every step
            continue
        words.append(text)
        sites = by_site(facts, syncs.cause_slice[rows], (syncs.end - syncs.start)[rows])
        what = f"Blocks capture: the step {text}"
        evidence += [Evidence(what, calls_per_step=rate(s.calls / count), location=s.location) for s in sites[:2]]
    calls = facts.host.rows_of("allocation")
    calls = calls[_amid_launches(facts, facts.slices.start[calls])]
    if len(calls) >= count:
        words.append(f"allocates driver memory {times(facts, len(calls) / count)}")
        evidence.append(Evidence("Blocks capture: driver allocations", calls_per_step=rate(len(calls) / count)))
    return words, evidence


def _amid_launches(facts: Facts, at: I8) -> npt.NDArray[np.bool_]:
    """Whether more than `EDGE` of the step's kernels are launched before, and more than `EDGE` after, each time."""
    share = facts.launch_calls.share_before(at)
    return np.asarray((share > EDGE) & (share < 1 - EDGE))


def _holder(facts: Facts) -> list[Location]:
    """The innermost user function that makes most of the main thread's launches."""
    frame = facts.launch_calls.function_with_share(MOST_LAUNCHES)
    if frame is None:
        return []
    return site_locations(by_site(facts, np.array([frame]), np.zeros(1, np.int64)))
