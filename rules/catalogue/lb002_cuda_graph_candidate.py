"""LB002: every step launches the same kernels, and launching them starves the GPU: a CUDA graph could replay them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import RemoveHost
from traceopt.analyzer.stalls.syncs import BLOCKING_COPY, DATA_DEPENDENT, EXPLICIT, SCALAR_READ
from traceopt.analyzer.tables.schema import I8
from traceopt.result.finding import Evidence, Fix, Location
from traceopt.result.quantities import ms, percent, times
from traceopt.result.rounding import rate
from traceopt.rules.evidence import by_site, site_locations
from traceopt.rules.rule import Findings, Rule, threshold
from traceopt.rules.savings.pricing import priced
from traceopt.rules.savings.starvation import dispatch_area, dispatch_ns

MOST_LAUNCHES = 0.8  # of the training thread's: the innermost function with so many holds the step
AMID = 0.05  # of a step's kernels
BLOCKERS = {
    SCALAR_READ: "reads single values back",
    DATA_DEPENDENT: "has operators whose size depends on the data",
    BLOCKING_COPY: "copies tensors to the host",
    EXPLICIT: "synchronizes",
}


class CudaGraphCandidate(Rule):
    """Measures the time in which the GPU starves for launches in steps that all launch the same kernels, with the same
    grids, in the same order. What keeps such a step from being captured is listed: syncs, driver allocations.

    Why it costs: the host repeats the same thousand launches in every step, each for some ten microseconds. A graph
    replays them with one call.

    How to fix: let the compiler record the graph, or capture the step by hand.

        model = torch.compile(model, mode="reduce-overhead")

        model = torch.cuda.make_graphed_callables(model, (sample,))   # forward and backward as graphs

    Everything inside must stay on the GPU: read the loss outside, keep shapes and addresses (static input tensors, a
    capturable optimizer).

    When it is wrong: the kernels of a graph may not take what changes from step to step (a learning rate as a Python
    number, random states). LB001 prices the same starvation with all remedies; the two share their cause.

    Sources: PyTorch, "Accelerating PyTorch with CUDA Graphs"; PyTorch documentation of torch.cuda.CUDAGraph,
    constraints.
    """

    code: ClassVar[str] = "LB002"
    name: ClassVar[str] = "cuda-graph-candidate"
    title: ClassVar[str] = "Replay the step as a CUDA graph"
    family: ClassVar[str] = "launch and dispatch"
    effort: ClassVar[str] = "One line, then testing"
    risk: ClassVar[str] = "Shapes must not change"
    requires: ClassVar[tuple[str, ...]] = ("gpu", "whole", "launches")

    min_share: float = threshold(0.05, "smallest starvation for launches, as a share of the median step, to report")
    min_steps: int = threshold(3, "recorded steps needed to compare them")
    min_same: float = threshold(0.66, "share of the steps that launch the same kernels with the same grids")
    max_replayed: float = threshold(0.50, "share of the kernels that graphs launch already")
    removable: float = threshold(0.85, "share of the starvation that a graph removes, expected")
    removable_blocked: float = threshold(0.5, "the same where something has to be moved out of the step first")

    def applies(self, facts: Facts) -> str | None:
        if facts.steps.source == "window" or facts.steps.count < self.min_steps:
            return "Too few recorded steps to see whether they repeat."
        if facts.repetition.replayed_share > self.max_replayed:
            return f"Graphs launch {percent(facts.repetition.replayed_share)} of the kernels already."
        return None

    def check(self, facts: Facts) -> Findings:
        starved, same = dispatch_ns(facts), facts.repetition
        if starved < self.min_share * facts.step_ns or same.same_share < self.min_same or not same.kernels:
            return
        blockers, evidence = _blockers(facts)
        removable = self.removable_blocked if blockers else self.removable
        dispatch = dispatch_area(facts)
        first = f" Before a capture, take out what blocks it: the step {' and '.join(blockers)}." if blockers else ""
        yield self.finding(
            why=(
                f"The GPU waits {ms(starved)} of each {ms(facts.step_ns)} step for launches, and {same.same_share:.0%} "
                f"of the steps launch the same {same.kernels:,.0f} kernels in the same order.{first}"
            ),
            saving=priced(
                facts,
                (0.5 * removable * starved, removable * starved, starved),
                [RemoveHost(dispatch, removable)],
                f"The step without {removable:.0%} of the time of dispatch; replaying costs the host one launch.",
                low=[RemoveHost(dispatch, 0.5 * removable)],
                high=[RemoveHost(dispatch)],
            ),
            evidence=[
                Evidence("Kernels that every step launches", calls_per_step=same.kernels),
                *evidence,
            ],
            locations=_holder(facts),
            fix=Fix(
                "Compile with CUDA graphs, or capture forward and backward.",
                'model = torch.compile(model, mode="reduce-overhead")',
            ),
            confidence="medium" if blockers else "high",
            shares_cause_with=["LB001"],
        )

    def passed(self, facts: Facts) -> str:
        same = facts.repetition
        starved = percent(dispatch_ns(facts) / facts.step_ns)
        if same.same_share < self.min_same <= same.same_names_share:
            return f"The steps launch the same kernels with other grids; launching starves the GPU for {starved}."
        return f"{same.same_share:.0%} of the steps launch the same kernels; launching starves the GPU for {starved}."


def _blockers(facts: Facts) -> tuple[list[str], list[Evidence]]:
    """What may not happen inside a capture, in words, with the places. What stands at a step's edge stays outside."""
    syncs, count = facts.syncs, facts.steps.count
    amid = _amid_launches(facts, syncs.start)
    words, evidence = [], []
    for reason, text in BLOCKERS.items():
        rows = np.flatnonzero((syncs.reason == reason) & amid)
        if len(rows) < count:  # not in every step
            continue
        words.append(text)
        sites = by_site(facts, syncs.cause_slice[rows], (syncs.end - syncs.start)[rows])
        what = f"Blocks a capture: the step {text}"
        evidence += [Evidence(what, calls_per_step=rate(s.calls / count), location=s.location) for s in sites[:2]]
    calls = facts.host.rows_of("allocation")
    calls = calls[_amid_launches(facts, facts.slices.start[calls])]
    if len(calls) >= count:
        words.append(f"asks the driver for memory {times(len(calls) / count)}")
        evidence.append(Evidence("Blocks a capture: driver allocations", calls_per_step=rate(len(calls) / count)))
    return words, evidence


def _amid_launches(facts: Facts, at: I8) -> npt.NDArray[np.bool_]:
    """Whether a moment has a good part of its step's kernels launched before and after it."""
    launch = facts.links.launch[facts.gpu.rows]
    starts = np.sort(facts.trace.runtime.start[launch[facts.gpu.is_kernel & (launch >= 0)]])
    step = facts.steps.step_of(at)
    inside = (step >= 0) & (step < facts.steps.count)
    edges = np.searchsorted(starts, facts.steps.edges)
    step = np.where(inside, step, 0)
    before = np.searchsorted(starts, at) - edges[step]
    share = before / np.maximum(1, edges[step + 1] - edges[step])
    return np.asarray(inside & (share > AMID) & (share < 1 - AMID))


def _holder(facts: Facts) -> list[Location]:
    """The innermost of the user's functions that holds most launches of the training thread."""
    slices, runtime = facts.slices, facts.trace.runtime
    launch = facts.links.launch[facts.gpu.rows]
    rows = distinct_values(launch[launch >= 0])
    starts = np.sort(runtime.start[rows[runtime.thread[rows] == facts.steps.thread]])
    frames = np.flatnonzero(facts.call_sites.user_frames & (slices.thread == facts.steps.thread))
    if not len(frames) or not len(starts):
        return []
    inside = np.searchsorted(starts, slices.end[frames]) - np.searchsorted(starts, slices.start[frames])
    _, group = np.unique(slices.name[frames], return_inverse=True)
    launches = np.bincount(group, weights=inside)
    time = np.bincount(group, weights=slices.end[frames] - slices.start[frames])
    enough = np.flatnonzero(launches >= MOST_LAUNCHES * len(starts))
    if not len(enough):
        return []
    chosen = enough[time[enough].argmin()]
    return site_locations(by_site(facts, frames[group == chosen][:1], np.zeros(1, np.int64)))
