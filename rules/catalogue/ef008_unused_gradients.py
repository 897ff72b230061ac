"""EF008: the backward pass computes gradients of weights that no optimizer updates."""

from __future__ import annotations

import numpy as np
from msgspec.structs import astuple

from traceopt.analyzer.run_log.run_settings import Gradients, Model
from traceopt.rules import (
    Evidence,
    Facts,
    Findings,
    Fix,
    Mask,
    Price,
    RemoveHost,
    Rule,
    area_of,
    by_calling_site,
    counted,
    each_step,
    launched_ns,
    ms,
    percent,
    places,
    priced,
    priced_work,
    rate,
    the_step,
    threshold,
    us,
)

WEIGHT_SHARE = 0.5  # of a backward pass: as many FLOP for the gradients of weights as for those of activations


class UnusedGradients(Rule):
    """Measures the matmuls and convolutions of the backward pass, if parameters have gradients that no optimizer uses.
    It reads which parameters have gradients, and which ones the optimizers hold, from what `traceopt run` recorded.

    Why it costs: half of a backward pass computes gradients of weights. For weights that stay as they are, nobody reads
    them. If nothing before such layers is trained either, their whole backward pass is for nothing.

    How to fix: say that these weights are not trained. Gradients still pass through them to what comes before.

        features.requires_grad_(False)

    When it is wrong: a script may read the gradients itself, or update parameters without an optimizer of torch.

    Sources: PyTorch documentation, "Autograd mechanics: setting requires_grad".
    """

    code = "EF008"
    name = "unused-gradients"
    title = "Turn gradients off for weights that are not trained"
    family = "efficiency"
    effort = "One line"
    risk = "Wrong if the script reads these gradients itself"
    confidence = "medium"
    requires = ("work", "whole", "ops")

    min_share: float = threshold(0.05, "smallest time of backward products of such weights, as a share of the step")

    def applies(self, facts: Facts) -> str | None:
        if not facts.trains:
            return "This run does not train."
        if not any(model.gradients is not None for model in facts.captured.models):
            return "Which parameters have gradients was not recorded; traceopt run does."
        return None

    def check(self, facts: Facts) -> Findings:
        known, products_ns = _gradients(facts), _products_ns(facts)
        if facts.accumulations < known.tensors or self._share(facts) < self.min_share:
            return
        evidence = _evidence(facts)
        names = ", ".join(dict.fromkeys(map(_name, filter(_has_unused, facts.captured.models))))
        count = counted(known.unused_tensors, "parameter")
        yield self.finding(
            why=(
                f"No optimizer uses the gradients of {count} of {names}. They are part of the matmuls and convolutions "
                f"of the backward pass, which take {ms(products_ns)} of {each_step(facts)}."
            ),
            saving=_price(facts, known.unused_weights / known.weights, products_ns),
            evidence=evidence,
            locations=places(evidence),
            fix=Fix(
                "Turn gradients off for these parameters. If nothing before them is trained either, run them under "
                "torch.no_grad().",
                "model.requires_grad_(False)  # before the loop, for what is not trained",
            ),
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
        return known.unused_weights / max(1, known.weights) * _products_ns(facts) / facts.step_ns


def _gradients(facts: Facts) -> Gradients:
    """Of all models together."""
    known = [model.gradients for model in facts.captured.models if model.gradients is not None]
    return Gradients(*(sum(counts) for counts in zip(*map(astuple, known), strict=True)))


def _has_unused(model: Model) -> bool:
    return model.gradients is not None and model.gradients.unused_tensors > 0


def _name(model: Model) -> str:
    return (model.wrapped or model.class_name or "a model").rpartition(".")[2]


def _products_ns(facts: Facts) -> float:
    """Per step: of the GPU's work, or of the operators in a CPU-only run."""
    if facts.has_gpu:
        return launched_ns(facts, _work(facts))
    return facts.steps.mean_ns(area_of(facts, facts.backward_products))


def _work(facts: Facts) -> Mask:
    products = np.zeros(len(facts.slices), bool)
    products[facts.backward_products] = True
    return facts.regions.work_under(products)


def _price(facts: Facts, share: float, products_ns: float) -> Price:
    """`share`: of the weights with gradients."""
    parts = (share * WEIGHT_SHARE / 2 if share == 1 else 0.0, share * WEIGHT_SHARE, share)
    low, expected, high = (part * products_ns for part in parts)
    basis = (
        f"Assumes {percent(parts[0])}, {percent(parts[1])} or {percent(parts[2])} of these operators' time is saved: "
        f"{percent(share)} of the weights are not trained, and their gradients are half of a backward pass. All of it "
        "is saved if nothing before them is trained."
    )
    if facts.has_gpu:
        return priced_work(facts, _work(facts), (low, expected, high), basis)
    area = area_of(facts, facts.backward_products)
    removed = [[RemoveHost(area, part)] for part in parts]
    return priced(facts, (low, expected, high), removed[1], basis, low=removed[0], high=removed[2])


def _evidence(facts: Facts) -> list[Evidence]:
    rows = facts.backward_products
    cost_ns = facts.regions.work_ns(rows) if facts.has_gpu else facts.slices.end[rows] - facts.slices.start[rows]
    count = facts.steps.count
    return [
        Evidence(
            "Backward products",
            us(site.cost_ns / count),
            rate(site.calls / count),
            location=site.location,
        )
        for site in by_calling_site(facts, rows, cost_ns)[:4]
    ]
