"""EF007: forward passes that train nothing take much of a training step."""

from __future__ import annotations

from traceopt.analyzer.autograd.untrained_calls import UntrainedCalls
from traceopt.rules import (
    Evidence,
    Facts,
    Findings,
    Fix,
    Risk,
    Rule,
    by_calling_site,
    each_step,
    ms,
    percent,
    site_evidence,
    the_step,
    threshold,
)

RARER = Fix(
    "If the result is the same in every step, compute it once before the loop. If it is a metric, compute it every N "
    "steps or from the outputs of the training pass. If each step needs it, as with a teacher, try lower precision.",
    "with torch.no_grad():\n    targets = features(image)  # before the loop, not inside it",
)
ONCE = Fix(
    "If the same inputs come again in each epoch, without random augmentation, compute the output of the frozen layers "
    "for all of them once, in eval mode, and train on it. If not, run these layers under torch.no_grad().",
    "with torch.no_grad():\n    features = [(backbone(x), y) for x, y in loader]  # once, before the first epoch",
)
OFF = Fix(
    "Run them under torch.no_grad(). This frees the memory of their activations; the pass itself still takes its time. "
    "If it is an evaluation, also run it less often.",
    "with torch.no_grad():\n    targets = teacher(images)",
)


class ForwardWithoutGradients(Rule):
    """Measures forward passes inside a training step that train nothing: matmuls, convolutions and attention under
    `torch.no_grad`, with gradients that no backward pass uses, or of frozen layers, and the operators around them. On a
    GPU, it is the time of the kernels that they launch; in a CPU-only run, the time of the operators.

    Why it costs: the step pays for a forward pass that trains nothing. Some steps need its result. Others compute the
    same result again (targets of a fixed input, features of a frozen network), or use it only for a metric.

    How to fix: compute what does not change once, before the loop. Compute metrics every N steps, or from the outputs
    of the training pass. If gradients are recorded and never used, turn them off: activations are then not kept.

        with torch.no_grad():
            targets = features(style_image)  # before the loop, not inside it

    Frozen layers at the start of a model return the same for the same input. If the data set has no random
    augmentation, compute their output once and train the other layers on it.

        with torch.no_grad():
            features = [(backbone(x), y) for x, y in loader]  # once, in eval mode, before the first epoch

    When it is wrong: a teacher, a target network or a rollout needs the pass in every step. What the fix saves depends
    on that, so the finding has no saving. In reinforcement learning, whose phases the report shows, such passes are not
    counted. Frozen layers behind trained ones are not counted: gradients pass through them.

    Sources: PyTorch documentation, "Autograd mechanics: locally disabling gradient computation".
    """

    code = "EF007"
    name = "forward-without-gradients"
    title = "Run forward passes without gradients once, or less often"
    family = "efficiency"
    risk = Risk.CORRECTNESS
    risk_note = "Wrong if the result changes from step to step"
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
        without = facts.calls_without_gradients
        if without is not None and not facts.rl_phases and self._much(facts, without):
            evidence = _evidence(facts, without, "Forward pass without gradients")
            yield self.finding(
                why=(
                    f"Forward passes without gradients take {_time(facts, without)}. They train nothing: their result "
                    "is a target, a metric or data."
                ),
                saving=None,  # only the author knows whether each step needs the result
                evidence=evidence,
                fix=RARER,
            )
        unused = facts.calls_without_backward
        if self._much(facts, unused):
            evidence = _evidence(facts, unused, "Forward pass whose gradients are not used")
            yield self.finding(
                title="Turn gradients off in forward passes that train nothing",
                risk_note="Wrong if a later step runs the backward pass",
                aspect="unused gradients",
                why=(
                    f"Forward passes that record gradients take {_time(facts, unused)}, but no backward pass uses "
                    "these gradients. Their activations are kept for nothing."
                ),
                saving=None,  # mostly memory
                evidence=evidence,
                fix=OFF,
            )

        frozen = facts.calls_of_frozen_layers
        if not facts.rl_phases and _may_be_frozen(facts) and self._much(facts, frozen):
            yield self.finding(
                title="Compute the output of frozen layers once",
                risk_note="Wrong if inputs differ in each epoch, or dropout is on",
                confidence="low",
                aspect="frozen layers",
                why=(
                    f"Forward passes of frozen layers take {_time(facts, frozen)}. No gradient passes through them, so "
                    "they return the same for the same input."
                ),
                saving=None,  # only the author knows whether inputs come again
                evidence=_evidence(facts, frozen, "Forward pass of frozen layers"),
                fix=ONCE,
            )

    def _much(self, facts: Facts, calls: UntrainedCalls) -> bool:
        return calls.total_ns >= self.min_share * facts.step_ns * facts.steps.count and len(calls.rows) > 0

    def passed(self, facts: Facts) -> str:
        share = percent(_per_step_ns(facts, facts.calls_without_gradients) / facts.step_ns)
        text = f"Forward passes without gradients take {share} of {the_step(facts)}"
        unused_ns = _per_step_ns(facts, facts.calls_without_backward)
        return (
            f"{text}; those whose gradients are not used {percent(unused_ns / facts.step_ns)}."
            if unused_ns
            else f"{text}."
        )


def _may_be_frozen(facts: Facts) -> bool:
    """Whether a model has weights that are not trained, where that was recorded."""
    models = facts.captured.models
    return not models or any(
        None in (one.trainable, one.parameters) or one.trainable != one.parameters for one in models
    )


def _evidence(facts: Facts, calls: UntrainedCalls, what: str) -> list[Evidence]:
    return site_evidence(facts, by_calling_site(facts, calls.rows, calls.cost_ns), what, 4)


def _time(facts: Facts, calls: UntrainedCalls) -> str:
    return f"{ms(_per_step_ns(facts, calls))} {'of GPU time ' if facts.has_gpu else ''}in {each_step(facts)}"


def _per_step_ns(facts: Facts, calls: UntrainedCalls | None) -> float:
    return 0.0 if calls is None else calls.total_ns / facts.steps.count
