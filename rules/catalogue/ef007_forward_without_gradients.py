"""EF007: forward passes without gradients take much of a training step."""

from __future__ import annotations

from traceopt.rules import (
    Evidence,
    Facts,
    Findings,
    Fix,
    Rule,
    by_calling_site,
    each_step,
    ms,
    percent,
    places,
    rate,
    the_step,
    threshold,
    us,
)


class ForwardWithoutGradients(Rule):
    """Measures forward passes inside a training step that record no gradients: matmuls, convolutions and attention
    under `torch.no_grad`, and the operators around them. On a GPU, it is the time of the kernels that they launch; in a
    CPU-only run, the time of the operators.

    Why it costs: the step pays for a forward pass that trains nothing. Some steps need its result. Others compute the
    same result again (targets of a fixed input, features of a frozen network), or use it only for a metric.

    How to fix: compute what does not change once, before the loop. Compute metrics every N steps, or from the outputs
    of the training pass.

        with torch.no_grad():
            targets = features(style_image)  # before the loop, not inside it

    When it is wrong: a teacher, a target network or a rollout needs the pass in every step. What the fix saves depends
    on that, so the finding has no saving. Frozen layers that run with gradients on are not seen.

    Sources: PyTorch documentation, "Autograd mechanics: locally disabling gradient computation".
    """

    code = "EF007"
    name = "forward-without-gradients"
    title = "Run forward passes without gradients once, or less often"
    family = "efficiency"
    effort = "A few lines"
    risk = "Wrong if the result changes from step to step"
    confidence = "medium"
    requires = ("work", "whole", "launches", "ops")

    min_share: float = threshold(0.05, "smallest time, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        if not facts.trains:
            return "This run does not train."
        if facts.calls_without_gradients is None:
            return "The operators of this trace do not tell whether gradients were on."
        return None

    def check(self, facts: Facts) -> Findings:
        calls, total_ns = facts.calls_without_gradients, _per_step_ns(facts)
        if calls is None or total_ns < self.min_share * facts.step_ns:
            return
        evidence = [
            Evidence(
                "Forward pass without gradients",
                us(site.cost_ns / facts.steps.count),
                rate(site.calls / facts.steps.count),
                location=site.location,
            )
            for site in by_calling_site(facts, calls.rows, calls.cost_ns)[:4]
        ]
        device = "of GPU time " if facts.has_gpu else ""
        yield self.finding(
            why=(
                f"Forward passes without gradients take {ms(total_ns)} {device}in {each_step(facts)}. They train "
                "nothing: their result is a target, a metric or data."
            ),
            saving=None,  # only the author knows whether each step needs the result
            evidence=evidence,
            locations=places(evidence),
            fix=Fix(
                "If the result is the same in every step, compute it once before the loop. If it is a metric, compute "
                "it every N steps or from the outputs of the training pass. If each step needs it, as with a teacher, "
                "try lower precision.",
                "with torch.no_grad():\n    targets = features(image)  # before the loop, not inside it",
            ),
        )

    def passed(self, facts: Facts) -> str:
        share = percent(_per_step_ns(facts) / facts.step_ns)
        return f"Forward passes without gradients take {share} of {the_step(facts)}."


def _per_step_ns(facts: Facts) -> float:
    calls = facts.calls_without_gradients
    return 0.0 if calls is None else calls.total_ns / facts.steps.count
