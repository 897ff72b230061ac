"""EF012: a one-hot matrix is multiplied by a parameter, instead of picking rows of the parameter."""

from __future__ import annotations

import numpy as np

from traceopt.rules import (
    Evidence,
    Facts,
    Findings,
    Fix,
    Price,
    Risk,
    Rule,
    by_calling_site,
    each_step,
    ms,
    named,
    percent,
    site_evidence,
    site_locations,
    the_step,
    threshold,
    us,
)
from traceopt.rules.savings.work.backward_nodes import node_ns, nodes_per_step_ns, without_nodes, without_part_of

LOW, EXPECTED = 0.8, 0.95  # of the time: the embedding reads its rows, and writes their gradients


class OneHotMatmul(Rule):
    """Measures `F.one_hot(ids, classes)` whose result goes into a linear layer or a matmul with a parameter: creating
    the matrix, casting it, multiplying it, and the matmul of the backward pass for the gradient of the parameter.

    Why it costs: each row of the matrix has a single 1, so the product is one row of the parameter. All other
    multiplications are by zero, and the matrix takes `classes` numbers for each id, first in int64.

    How to fix: pick the same rows. With the weight of the layer itself, initialization and checkpoints stay as they
    are.

        x = F.embedding(ids, self.linear.weight.t()) + self.linear.bias   # not self.linear(F.one_hot(ids, n).float())
        x = F.embedding(ids, self.weight)                                 # not F.one_hot(ids, n).float() @ self.weight

    A new model can use nn.Embedding(classes, width), whose initialization is a different one.

    When it is wrong: the script also needs the one-hot matrix for something else. One-hot targets of a loss, masks, and
    products with activations (dispatch to experts) do not count. Neither do recurrent layers that are fed with one-hot
    vectors. If an operator of the forward pass takes two tensors of the size of the matrix, the match is not sure and
    nothing is reported.

    Sources: PyTorch documentation, "torch.nn.Embedding" and "torch.nn.functional.one_hot".
    """

    code = "EF012"
    name = "one-hot-matmul"
    title = "Use an embedding instead of multiplying one-hot vectors"
    family = "efficiency"
    risk = Risk.ROUNDING
    requires = ("whole", "ops", "shapes")

    min_share: float = threshold(0.02, "smallest time of these operators, as a share of the step, to report")
    min_classes: int = threshold(64, "fewest columns of the one-hot matrix to count: narrow products take no time")

    def applies(self, facts: Facts) -> str | None:
        return None if len(facts.one_hot_products) else "No one-hot matrix is multiplied by a parameter."

    def check(self, facts: Facts) -> Findings:
        matmuls = facts.one_hot_products
        time_ns = nodes_per_step_ns(facts, matmuls.rows)
        classes = int(matmuls.classes.max())
        if classes < self.min_classes or time_ns < self.min_share * facts.step_ns:
            return
        sites = by_calling_site(facts, matmuls.one_hot, node_ns(facts, matmuls.one_hot))
        products = by_calling_site(facts, matmuls.product, node_ns(facts, matmuls.product))
        yield self.finding(
            why=(
                f"A one-hot matrix with {classes:,} columns is multiplied by a parameter. With the casts and the "
                f"gradient of the parameter, this takes {ms(time_ns)} of {each_step(facts)}. An embedding picks the "
                "same rows without multiplying."
            ),
            saving=_price(facts),
            evidence=[
                *site_evidence(facts, sites, named("aten::one_hot")),
                *site_evidence(facts, products, "Its product"),
                Evidence("Casts of it, and the gradient of the parameter", us(_rest_ns(facts))),
            ],
            locations=site_locations([*products, *sites]),
            fix=Fix(
                "Look the ids up in the transposed weight of the linear layer, and add its bias. The layer, its "
                "initialization and its checkpoints stay as they are.",
                "x = F.embedding(ids, self.linear.weight.t()) + self.linear.bias",
            ),
        )

    def passed(self, facts: Facts) -> str:
        share = percent(nodes_per_step_ns(facts, facts.one_hot_products.rows) / facts.step_ns)
        return f"Products of one-hot matrices take {share} of {the_step(facts)}."


def _rest_ns(facts: Facts) -> float:
    matmuls = facts.one_hot_products
    return nodes_per_step_ns(facts, np.setdiff1d(matmuls.rows, np.concatenate([matmuls.one_hot, matmuls.product])))


def _price(facts: Facts) -> Price:
    rows = facts.one_hot_products.rows
    basis = f"Assumes the fix removes {percent(LOW)}, {percent(EXPECTED)} or 100% of these operators' time."
    if not facts.has_gpu:
        return without_nodes(facts, rows, LOW, EXPECTED, basis)
    return without_part_of(facts, rows, (LOW, EXPECTED, 1.0), basis)
