"""EF009: several losses of one forward pass each run their own backward pass."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.rules import (
    Effort,
    Facts,
    Findings,
    Fix,
    Location,
    Risk,
    Rule,
    area_of,
    by_calling_site,
    each_step,
    ms,
    per_step,
    site_locations,
    the_step,
    threshold,
)
from traceopt.rules.savings.work.backward_nodes import node_evidence, nodes_per_step_ns, without_nodes

LOW, ALL = 0.8, 1.0  # of the repeated nodes: one backward pass runs each node once


class RepeatedBackward(Rule):
    """Measures the backward nodes that run again in a later backward pass of the same step, over the same forward pass.
    On a GPU it is the time of their kernels, and of the host if the GPU waits for it.

    Why it costs: `retain_graph=True` keeps the graph, and each further `backward()` passes through the layers that the
    losses share. With four losses, the shared layers run their backward pass four times.

    How to fix: add the losses and call `backward()` once. Gradients are sums, so the result is the same.

        loss = loss_a + loss_b
        loss.backward()  # instead of loss_a.backward(retain_graph=True) and loss_b.backward()

    When it is wrong: code that reads `param.grad` after each pass needs the passes, for example to measure or to
    project the gradients of single tasks. Passes with an optimizer step or a `zero_grad` between them do not count, and
    neither do `torch.autograd.grad` and gradients of gradients.

    Sources: PyTorch documentation, "torch.Tensor.backward".
    """

    code = "EF009"
    name = "repeated-backward"
    title = "Add the losses and run one backward pass"
    family = "efficiency"
    effort = Effort.ONE_LINE
    risk = Risk.CORRECTNESS
    risk_note = "Wrong if the script reads the gradients of single losses"
    requires = ("whole", "ops")

    min_share: float = threshold(0.02, "smallest time of repeated nodes, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        return None if facts.regions.backward.any() else "The trace shows no backward pass."

    def check(self, facts: Facts) -> Findings:
        rows = facts.repeated_backward
        if not len(rows) or nodes_per_step_ns(facts, rows) < self.min_share * facts.step_ns:
            return
        yield self.finding(
            why=(
                f"Several backward passes {per_step(facts)} go through the same forward pass. Nodes that an earlier "
                f"pass has already run take {ms(nodes_per_step_ns(facts, rows))} of {each_step(facts)}."
            ),
            saving=without_nodes(
                facts,
                rows,
                LOW,
                ALL,
                "Assumes the repeated nodes are gone. Adding up what flows back from the losses takes little time.",
            ),
            evidence=node_evidence(facts, rows, "Backward nodes that run again", 4),
            locations=_lines(facts, rows) or None,
            fix=Fix(
                "Add the losses and call backward() once. The gradients are the same, because gradients add up.",
                "(loss_a + loss_b).backward()  # instead of one backward(retain_graph=True) for each loss",
            ),
        )

    def passed(self, facts: Facts) -> str:
        rows = facts.repeated_backward
        if not len(rows):
            return "No backward pass repeats the nodes of another."
        return f"Repeated backward nodes take {ms(nodes_per_step_ns(facts, rows))} of {the_step(facts)}."


def _lines(facts: Facts, rows: npt.NDArray[np.int64]) -> list[Location]:
    """Where the repeated passes begin: the lines of `backward()`."""
    passes = np.flatnonzero(facts.regions.engine)
    inside_ns = area_of(facts, rows).within(facts.slices.start[passes], facts.slices.end[passes])
    again = inside_ns > 0
    return site_locations(by_calling_site(facts, passes[again], inside_ns[again]))
