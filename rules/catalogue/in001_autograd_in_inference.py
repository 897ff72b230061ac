"""IN001: inference records an unused autograd graph."""

from __future__ import annotations

from traceopt.rules import (
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    RemoveHost,
    Rule,
    Wrap,
    dispatch_area,
    each_step,
    ms,
    percent,
    priced,
    starved_ns,
    threshold,
)


class AutogradInInference(Rule):
    """Measures how many autograd nodes a step creates (counted by their sequence numbers), in a run without a backward
    pass or optimizer in which the GPU waits for the host.

    Why it costs: each operator with a differentiable result creates a node, saves tensors for a backward pass that
    never comes, and tracks versions. The saved tensors also hold memory until the outputs are freed.

    How to fix: switch autograd off around inference.

        with torch.inference_mode():
            logits = model(inputs)

    `model.eval()` does not do that: it only changes dropout and normalization.

    When it is wrong: a training run with only the forward pass recorded. The host time per node is assumed (a
    threshold), not measured. If the GPU is busy, that time is hidden and the rule stays silent.

    Sources: PyTorch documentation, "Autograd mechanics: locally disabling gradient computation".
    """

    code = "IN001"
    name = "autograd-in-inference"
    title = "Run inference under torch.inference_mode()"
    family = "inference"
    effort = Effort.ONE_LINE
    confidence = "low"
    requires = ("gpu", "whole", "launches", "ops")

    min_share: float = threshold(0.01, "smallest saving, as a share of the step, to report")
    min_nodes: int = threshold(20, "fewest autograd nodes per step that count as a recorded graph")
    node_us: float = threshold(0.5, "assumed host time per node, in microseconds")

    def applies(self, facts: Facts) -> str | None:
        if facts.trains:
            return "This run trains."
        return None if facts.infers else "The trace does not tell whether this run trains."

    def check(self, facts: Facts) -> Findings:
        nodes = facts.autograd_nodes
        host = nodes * self.node_us * 1e3
        expected = min(host, starved_ns(facts))
        if nodes < self.min_nodes or expected < self.min_share * facts.step_ns:
            return
        dispatch = dispatch_area(facts)
        spent = max(host, dispatch.total / facts.steps.count)
        yield self.finding(
            why=(
                f"The steps have no backward pass but record {nodes:,.0f} autograd nodes each. That takes about "
                f"{ms(host)} of host time in {each_step(facts)} and keeps the nodes' tensors in memory."
            ),
            saving=priced(
                facts,
                (0.0, expected, min(2 * host, starved_ns(facts))),
                [RemoveHost(dispatch, host / spent)],
                f"Assumes {self.node_us:g} µs of host time per node, spread over the step's dispatch.",
                low=[],
                high=[RemoveHost(dispatch, min(1.0, 2 * host / spent))],
            ),
            evidence=[Evidence("Autograd nodes", calls_per_step=round(nodes, 3))],
            fix=Fix(
                "Run inference under torch.inference_mode().",
                edits=[Wrap("torch.inference_mode", "logits = model(inputs)")],
            ),
            shares_cause_with=["LB002"],
        )

    def passed(self, facts: Facts) -> str:
        starved = percent(starved_ns(facts) / facts.step_ns)
        nodes = facts.autograd_nodes
        return f"A step records {nodes:,.0f} autograd nodes; the GPU waits for the host for {starved} of it."
