"""EF021: distances or products of all pairs are computed through a tensor with a vector for each pair."""

from __future__ import annotations

from math import prod

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.autograd.forward.broadcast_pairs import AllPairs
from traceopt.result import experiments
from traceopt.result.experiments import MOST_ELEMENTS, Comparison
from traceopt.rules import (
    I8,
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Price,
    Priced,
    Risk,
    Rule,
    each_step,
    ms,
    percent,
    the_step,
    threshold,
    us,
)
from traceopt.rules.savings.measured import Part, measured
from traceopt.rules.savings.work.backward_nodes import node_evidence, nodes_per_step_ns, without_nodes


class Form(Struct, frozen=True):
    """What is computed of each pair, and the form without a vector for each pair. `low`, `expected`: the share of the
    time that goes, measured on CPUs for vectors of 2 to 256 numbers.
    """

    title: str
    what: str
    fix: Fix
    low: float = 0.7
    expected: float = 0.93
    rounds: bool = True


FORMS = {
    "squared": Form(
        "Compute squared distances with a matmul",
        "Squared distances",
        Fix(
            "Multiply the matrices instead: |x - y|² = |x|² + |y|² - 2 x·y. Distances of almost equal vectors lose "
            "digits and may become slightly negative.",
            "d = x.pow(2).sum(-1, keepdim=True) + y.pow(2).sum(-1) - 2 * x @ y.mT  # add .clamp_min(0) before a root",
        ),
    ),
    "euclidean": Form(
        "Use torch.cdist for distances of all pairs",
        "Euclidean distances",
        Fix("Use torch.cdist, which multiplies the matrices.", "d = torch.cdist(x, y)"),
    ),
    "manhattan": Form(
        "Use torch.cdist for absolute differences of all pairs",
        "Sums of absolute differences",
        Fix("Use torch.cdist with p=1, which keeps one number for each pair.", "d = torch.cdist(x, y, p=1)"),
        low=0.2,
        expected=0.7,
        rounds=False,
    ),
    "product": Form(
        "Compute products of all pairs with a matmul",
        "Products",
        Fix("Multiply the matrices instead.", "products = x @ y.mT"),
    ),
    "cosine": Form(
        "Compute cosine similarities with a matmul",
        "Cosine similarities",
        Fix(
            "Normalize the vectors once, and multiply the matrices.",
            "similarity = F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).mT",
        ),
    ),
}


class BroadcastPairs(Rule):
    """Measures distances, products and cosine similarities between all pairs of vectors that go through a tensor with a
    vector for each pair: the operators that make it, square it and sum it, and their backward pass.

    Why it costs: for 1,024 times 100 vectors of 64 numbers, the tensor has 6.5 million numbers, and the result 0.1
    million. Each operator reads and writes the large tensor, and the backward pass keeps it in memory. A matmul gives
    the same result without it.

    How to fix: write squared distances and products as a matmul, and use torch.cdist for other distances.

        d = (x[:, None] - y[None]).pow(2).sum(-1)                                # slow
        d = x.pow(2).sum(-1, keepdim=True) + y.pow(2).sum(-1) - 2 * x @ y.mT     # as a matmul
        d = torch.cdist(x, y)                                                    # Euclidean distances, with a root
        d = torch.cdist(x, y, p=1)                                               # sums of absolute differences

    A mean instead of a sum is the same divided by the size of a vector. If the differences are scaled, scale both sides
    first. A leading dimension of batches stays as it is.

    The saving assumes that most of the time goes. `traceopt run` and `traceopt measure` measure both forms instead.

    When it is wrong: the matmul form rounds differently. Distances between almost equal vectors lose digits and may be
    slightly negative; torch.cdist(..., compute_mode="donot_use_mm_for_euclid_dist") is exact and still needs no large
    tensor. If the differences themselves are used, such as for directions or a weighted sum, nothing is reported.

    Sources: PyTorch documentation, "torch.cdist".
    """

    code = "EF021"
    name = "broadcast-pairs"
    title = "Compute all pairs with a matmul or torch.cdist"
    family = "efficiency"
    effort = Effort.ONE_LINE_TESTED
    risk = Risk.ROUNDING
    requires = ("work", "whole", "ops", "shapes")

    min_share: float = threshold(0.03, "smallest time of these operators, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        return None if facts.broadcast_pairs else "Nothing is computed of all pairs through a tensor of their vectors."

    def check(self, facts: Facts) -> Findings:
        for kind, form in FORMS.items():
            pairs = [pair for pair in facts.broadcast_pairs if pair.kind == kind]
            if pairs and _time_ns(facts, pairs) >= self.min_share * facts.step_ns:
                yield self._found(facts, form, pairs)

    def _found(self, facts: Facts, form: Form, pairs: list[AllPairs]) -> Priced:
        shape, time_ns = max((pair.shape for pair in pairs), key=prod), _time_ns(facts, pairs)
        forward, backward = (
            np.sort(np.concatenate(rows)) for rows in zip(*((p.rows, p.nodes) for p in pairs), strict=True)
        )
        evidence = node_evidence(facts, forward)
        if len(backward):
            evidence.append(Evidence("Their backward pass", us(nodes_per_step_ns(facts, backward))))
        sizes = " x ".join(f"{size:,}" for size in shape)
        both = ", forward and backward" if len(backward) else ""
        return self.finding(
            title=form.title,
            why=(
                f"{form.what} of all pairs are computed through a tensor of {sizes} numbers, with a vector for each "
                f"pair. This takes {ms(time_ns)} of {each_step(facts)}{both}."
            ),
            saving=_price(facts, form, pairs),
            evidence=evidence,
            fix=form.fix,
            risk=None if form.rounds else Risk.NONE,
        )

    def passed(self, facts: Facts) -> str:
        share = percent(_time_ns(facts, list(facts.broadcast_pairs)) / facts.step_ns)
        return f"Operators on tensors with a vector for each pair take {share} of {the_step(facts)}."


def _rows(pairs: list[AllPairs]) -> I8:
    return np.sort(np.concatenate([rows for pair in pairs for rows in (pair.rows, pair.nodes)]))


def _price(facts: Facts, form: Form, pairs: list[AllPairs]) -> Price:
    low, expected, high = form.low, form.expected, 1.0
    basis = f"Assumes {percent(low)}, {percent(expected)} or 100% of these operators' time goes away."
    work = measured(facts, [Part(_time_ns(facts, [pair]), _both_ways(pair)) for pair in pairs])
    if work.speedup is not None:
        low, expected, high = work.shares
        basis = f"{work.words}."
    price = without_nodes(facts, _rows(pairs), low, expected, basis, high=high)
    return replace(price, experiments=work.experiments)


def _both_ways(pair: AllPairs) -> Comparison | None:
    """All pairs as an experiment, in FP32 because nearly all are, with and without a vector for each."""
    *batch, left, right, size = pair.shape
    if min(pair.shape) < 1 or prod(pair.shape) > MOST_ELEMENTS:
        return None
    now = experiments.AllPairs(prod(batch), left, right, size, pair.kind, "fp32", backward=len(pair.nodes) > 0)
    return Comparison(now, replace(now, by_matmul=True))


def _time_ns(facts: Facts, pairs: list[AllPairs]) -> float:
    return nodes_per_step_ns(facts, _rows(pairs))
