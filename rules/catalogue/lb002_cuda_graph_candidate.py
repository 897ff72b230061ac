"""LB002: every step launches the same kernels while the GPU waits, so a CUDA graph could replay them."""

from __future__ import annotations

import numpy as np

from traceopt.rules import (
    CUDA_GRAPH,
    Evidence,
    Facts,
    Findings,
    Fix,
    Location,
    RemoveHost,
    Rule,
    by_site,
    dispatch_area,
    dispatch_ns,
    each_step,
    launch_confidence,
    ms,
    passes_area,
    passes_ns,
    percent,
    priced,
    site_locations,
    the_step,
    threshold,
)
from traceopt.rules.fixes.advice.compilation import compiled, engine_graphs
from traceopt.rules.fixes.advice.graph_capture import blockers

MOST_LAUNCHES = 0.8  # of the main thread's launches: the innermost function with this share runs the step


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
    number, random states). LB001 prices the same idle time with all remedies, so the two share their cause. Both replay
    the step with less launch time and count no more than the wait: 70 % less in LB001, 85 % less here (50 % if
    something blocks the capture).

    Sources: PyTorch, "Accelerating PyTorch with CUDA Graphs"; PyTorch documentation of torch.cuda.CUDAGraph,
    constraints.
    """

    code = "LB002"
    name = "cuda-graph-candidate"
    title = f"Replay the step as a {CUDA_GRAPH}"
    family = "launch and dispatch"
    effort = "One line, then testing"
    risk = "Shapes must not change"
    requires = ("gpu", "whole", "launches")

    min_share: float = threshold(0.03, "smallest GPU wait for launches of a graph, as a share of the step, to report")
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
        starved, captured, same = dispatch_ns(facts), passes_ns(facts), facts.repetition
        if captured < self.min_share * facts.step_ns or same.same_share < self.min_same or not same.kernels:
            return
        blocks, evidence = blockers(facts)
        removable = self.removable_blocked if blocks else self.removable
        blocked = f" First remove what blocks the capture: the step {' and '.join(blocks)}." if blocks else ""
        in_passes = f", {ms(captured)} of it in the forward and backward passes" if captured < starved else ""
        yield self.finding(
            title=f"Replay the forward and backward passes as {CUDA_GRAPH}s" if facts.trains else None,
            why=(
                f"The GPU waits {ms(starved)} of {each_step(facts)} for launches{in_passes}. "
                f"{percent(same.same_share)} of the steps launch the same {same.kernels:,.0f} kernels in the same "
                f"order.{blocked}"
            ),
            saving=priced(
                facts,
                (0.5 * removable * captured, captured, starved),
                [RemoveHost(passes_area(facts), removable)],
                f"Assumes launch time drops by {percent(removable)}, capped at the GPU's wait for it; replaying a "
                "graph takes one launch." + (" At most, the optimizer is captured too." if captured < starved else ""),
                low=[RemoveHost(passes_area(facts), 0.5 * removable)],
                high=[RemoveHost(dispatch_area(facts))],
                without_replay_ns=removable * captured,
            ),
            evidence=[
                Evidence("Kernels launched in every step", calls_per_step=same.kernels),
                *evidence,
            ],
            locations=_holder(facts),
            fix=_fix(facts),
            confidence="medium" if blocks and launch_confidence(facts) == "high" else launch_confidence(facts),
            shares_cause_with=["LB001"],
        )

    def passed(self, facts: Facts) -> str:
        same = facts.repetition
        captured = passes_ns(facts)
        starved = percent(captured / facts.step_ns)
        where = " in the forward and backward passes" if captured < dispatch_ns(facts) else ""
        if same.same_share < self.min_same <= same.same_names_share:
            kernels = "The steps launch the same kernels with different grids"
        else:
            kernels = f"{percent(same.same_share)} of the steps launch the same kernels"
        return f"{kernels}; the GPU waits for launches{where} for {starved} of {the_step(facts)}."


def _fix(facts: Facts) -> Fix:
    if (engine := engine_graphs(facts)) is not None:
        return Fix(f"{engine}.")
    passes = "the forward and backward passes" if facts.trains else "the forward pass"
    how = "Pass mode='reduce-overhead' to torch.compile" if compiled(facts) else f"Compile with {CUDA_GRAPH}s"
    whole = " A capture by hand can hold the whole step, with a capturable optimizer." if facts.trains else ""
    return Fix(f"{how}, or capture {passes}.{whole}", 'model = torch.compile(model, mode="reduce-overhead")')


def _holder(facts: Facts) -> list[Location]:
    """The innermost user function that makes most of the main thread's launches."""
    frame = facts.launch_calls.function_with_share(MOST_LAUNCHES)
    if frame is None:
        return []
    return site_locations(by_site(facts, np.array([frame]), np.zeros(1, np.int64)))
