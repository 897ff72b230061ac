"""EF008: the backward pass computes gradients of weights that no optimizer updates."""

from __future__ import annotations

from msgspec.structs import astuple, replace

from traceopt.analyzer.autograd.module_passes import ModulePasses
from traceopt.analyzer.run_log.run_settings import Gradients, Model
from traceopt.rules import (
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Price,
    Risk,
    Rule,
    by_calling_site,
    counted,
    each_step,
    ms,
    percent,
    site_evidence,
    the_step,
    threshold,
)
from traceopt.rules.savings.work.backward_nodes import (
    HALF,
    gradient_additions,
    products_ns,
    weight_share,
    without_nodes,
    without_part_of,
)

TURN_OFF = Fix(
    "Turn gradients off for these parameters. If nothing before them is trained either, run them under "
    "torch.no_grad().",
    "model.requires_grad_(False)  # before the loop, for what is not trained",
)
RUN_WITHOUT_GRADIENTS = Fix(
    "Run the model that is not trained under torch.no_grad(), if what it gets does not depend on trained weights: a "
    "reference model, a teacher. Otherwise, as for a network that computes a loss, turn the gradients of its "
    "parameters off.",
    "with torch.no_grad():\n    wanted = reference(batch)  # else: reference.requires_grad_(False)",
)


class UnusedGradients(Rule):
    """Measures the matmuls and convolutions of the backward pass, if parameters have gradients that no optimizer uses.
    It reads which parameters have gradients, and which ones the optimizers hold, from what `traceopt run` recorded.

    Why it costs: half of a backward pass computes gradients of weights, and each is added to those of earlier passes
    unless they were cleared. For weights that stay as they are, nobody reads them. If nothing before such layers is
    trained either, their whole backward pass is for nothing. Of a model that is not trained at all, frames and shapes
    show whether it gives a gradient of what it gets. On a GPU, kernels of convolutions show by their names how much of
    the time is for weights.

    How to fix: say that these weights are not trained. Gradients still pass through them to what comes before.

        features.requires_grad_(False)

    When it is wrong: a script may read the gradients itself. It may also update weights by itself, as in
    `p.data.add_(p.grad, alpha=-lr)`. So the rule is silent if the run has no optimizer of torch. It skips models
    whose weights `traceopt run` saw change. It is also silent if no weight belongs to an optimizer, and nobody saw
    whether weights change.

    Sources: PyTorch documentation, "Autograd mechanics: setting requires_grad".
    """

    code = "EF008"
    name = "unused-gradients"
    title = "Turn gradients off for weights that are not trained"
    family = "efficiency"
    effort = Effort.ONE_LINE
    risk = Risk.CORRECTNESS
    risk_note = "Wrong if the script reads these gradients itself"
    confidence = "medium"
    requires = ("work", "whole", "ops")

    min_share: float = threshold(0.05, "smallest time of backward products of such weights, as a share of the step")

    def applies(self, facts: Facts) -> str | None:
        if not facts.trains:
            return "This run does not train."
        if not any(model.gradients is not None for model in facts.captured.models):
            return "Which parameters have gradients was not recorded; traceopt run does."
        if not facts.captured.optimizers:
            return "No optimizer of torch was recorded, so the script may update its weights by itself."
        known = _gradients(facts)
        if known.unused_tensors == known.tensors > 0 and not _watched(facts):
            return "No optimizer updates any of the weights, so the script may update them by itself."
        return None

    def check(self, facts: Facts) -> Findings:
        known = _gradients(facts)
        if facts.accumulations < known.tensors or self._share(facts) < self.min_share:
            return
        evidence, products = _evidence(facts), ms(products_ns(facts, facts.backward_products))
        names = ", ".join(dict.fromkeys(map(_name, filter(_has_unused, facts.captured.models))))
        count = counted(known.unused_tensors, "parameter")
        apart = _apart(facts)
        yield self.finding(
            title="Run the model that is not trained without gradients" if apart else None,
            why=(
                f"No optimizer uses the gradients of {count} of {names}. They are part of the matmuls and convolutions "
                f"of the backward pass, which take {products} of {each_step(facts)}."
            ),
            saving=_price(facts, known, apart),
            evidence=evidence,
            fix=RUN_WITHOUT_GRADIENTS if apart else TURN_OFF,
        )

    def passed(self, facts: Facts) -> str:
        known = _gradients(facts)
        if not known.unused_tensors:
            return f"Optimizers use the gradients of all {counted(known.tensors, 'parameter')} that have one."
        share = percent(self._share(facts))
        return f"Backward products of weights whose gradients are not used take {share} of {the_step(facts)}."

    def _share(self, facts: Facts) -> float:
        """Of the step: the backward products of weights whose gradients are not used."""
        known = _gradients(facts)
        share_of_step = products_ns(facts, facts.backward_products) / facts.step_ns
        return known.unused_weights / max(1, known.weights) * share_of_step


def _gradients(facts: Facts) -> Gradients:
    """Of all models together."""
    return Gradients(*(sum(counts) for counts in zip(*map(astuple, _by_model(facts)), strict=True)))


def _by_model(facts: Facts) -> list[Gradients]:
    """The gradients of a model whose weights the script updates by itself are used."""
    return [
        replace(model.gradients, unused_tensors=0, unused_weights=0) if model.updated_by_hand else model.gradients
        for model in facts.captured.models
        if model.gradients is not None
    ]


def _watched(facts: Facts) -> bool:
    """Whether it is known of each model with unused gradients that its weights do not change."""
    return all(model.updated_by_hand is False for model in filter(_has_unused, facts.captured.models))


def _has_unused(model: Model) -> bool:
    return model.gradients is not None and model.gradients.unused_tensors > 0 and not model.updated_by_hand


def _name(model: Model) -> str:
    return (model.wrapped or model.class_name or "a model").rpartition(".")[2]


def _apart(facts: Facts) -> int:
    """Weights of models that are not trained at all, beside others that are: a reference, a teacher, a loss network."""
    known = _by_model(facts)
    untrained = list(filter(_is_untrained, known))
    return sum(parameters.weights for parameters in untrained) if len(untrained) < len(known) else 0


def _whole_passes(facts: Facts) -> ModulePasses | None:
    """The backward passes of the models that are not trained at all, if they are all that their classes run and no
    gradient leaves them.
    """
    models = facts.captured.models
    trained = {_name(model) for model in models if model.updated_by_hand or not _is_untrained(model.gradients)}
    untrained = [name for name in map(_name, models) if name not in trained]
    passes = facts.passes_of(untrained)
    return passes if passes.end_here and passes.modules == len(untrained) else None


def _passed_on(facts: Facts) -> bool:
    """Whether the models that are not trained pass gradients on: no more backward passes end at data than there are
    trained models.
    """
    known = [one for one in _by_model(facts) if one.weights]
    return 0 < facts.backward_ends <= len(known) - sum(map(_is_untrained, known))


def _is_untrained(gradients: Gradients | None) -> bool:
    return gradients is not None and 0 < gradients.weights == gradients.unused_weights


def _price(facts: Facts, known: Gradients, apart: int) -> Price:
    """`apart`: weights of models that are not trained at all."""
    share, of_weights = known.unused_weights / known.weights, weight_share(facts, facts.backward_products)
    passed_on = apart > 0 and _passed_on(facts)
    parts = (share * of_weights / 2 if share == 1 else 0.0, share * of_weights, of_weights if passed_on else share)
    basis = (
        f"Assumes {percent(parts[0])}, {percent(parts[1])} or {percent(parts[2])} of these operators' time is saved: "
        f"{percent(share)} of the weights are not trained, and their gradients are {percent(of_weights)} of a backward "
        "pass. "
    )
    if not apart:
        additions = gradient_additions(facts)
        return without_part_of(
            facts,
            facts.backward_products,
            parts,
            f"{basis}All of it is saved if nothing before them is trained. They are not added up either, which takes "
            f"{ms(share * products_ns(facts, additions))}.",
            always=(additions, share),
        )
    whole = _whole_passes(facts)
    if whole is not None:
        return without_nodes(
            facts,
            whole.nodes,
            HALF,
            1.0,
            "Assumes that the whole backward pass of this model goes, for no gradient leaves it: what it gets is data. "
            "At least, the gradients of its weights go, which are half of it.",
        )
    if passed_on:
        text = f"{basis}No backward pass ends in these models, so they pass gradients on to what is trained."
        return without_part_of(facts, facts.backward_products, parts, text)
    nodes, passes = facts.slices.outermost(facts.regions.backward), apart / known.weights
    return without_part_of(
        facts,
        facts.backward_products,
        parts,
        f"{basis}At most, {percent(passes)} of all backward passes is saved: if nothing before the model is trained.",
        (nodes, passes),
    )


def _evidence(facts: Facts) -> list[Evidence]:
    rows = facts.backward_products
    cost_ns = facts.regions.work_ns(rows) if facts.has_gpu else facts.slices.duration_of(rows)
    return site_evidence(facts, by_calling_site(facts, rows, cost_ns), "Backward products", 4)
