"""EF028: a matrix that is almost all zero is multiplied as if it were full."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.autograd.forward.zero_products import ZeroProducts
from traceopt.rules import (
    Facts,
    Findings,
    Fix,
    Price,
    Risk,
    Rule,
    each_step,
    ms,
    percent,
    the_step,
    threshold,
)
from traceopt.rules.savings.work.backward_nodes import node_evidence, node_ns, nodes_per_step_ns, without_nodes

# How many times as long as a multiplication of a full product one of a sparse product takes, low to high saving:
# measured on a CPU for matrices of 1,000 and 3,000 rows. The backward pass transposes a CSR matrix each time.
SLOWER = (80.0, 30.0, 6.0)

SAME_MATRIX = Fix(
    "If the matrix stays the same, convert it to a sparse one once. If its rows hold the ids of a few items, pick "
    "these rows of the weight and add them (F.embedding_bag).",
    "adjacency = adjacency.to_sparse_csr()  # once, before the loop\n"
    "y = torch.sparse.mm(adjacency, x)      # instead of adjacency @ x",
)
ROWS_OF_IDS = Fix(
    "If each row holds the ids of a few items, as one-hot columns and bags of words do, do not build the matrix: pick "
    "these rows of the weight and add them. Columns of other numbers keep a linear layer. If the matrix stays the "
    "same, convert it to a sparse one once.",
    'table = nn.EmbeddingBag(sum(sizes), width, mode="sum")  # instead of nn.Linear(sum(sizes), width)\n'
    "y = table(ids + offsets) + bias                         # offsets: the first row of each column of ids",
)


class MostlyZeroMatmul(Rule):
    """Measures matmuls of a run without a GPU whose one factor is almost all zero and has no gradient, such as the
    adjacency matrix of a graph, one-hot rows or bags of words, with their backward pass. `traceopt run` looks for such
    matrices in a sample of what the backward pass keeps.

    Why it costs: a matmul multiplies every element, zeros too. In a graph of 3,000 nodes with 5 neighbours each, the
    adjacency matrix is 99.8% zeros.

    How to fix: convert a matrix that stays the same to a sparse one, once.

        adjacency = adjacency.to_sparse_csr()  # once, before the loop
        y = torch.sparse.mm(adjacency, x)      # instead of adjacency @ x

    If each row holds the ids of a few items, do not build the matrix: pick the rows of the weight and add them.

        table = nn.EmbeddingBag(sum(sizes), width, mode="sum")   # instead of nn.Linear(sum(sizes), width)
        y = table(ids + offsets) + bias                          # offsets: the first row of each column of ids

    When it is wrong: converting in each step costs time, too. The saving assumes that a multiplication takes 6 to 80
    times as long in a sparse product, 30 times as expected. Sizes tell which matmuls have such a factor, so one with
    another matrix of the same size may be counted. The sums are added in another order.

    Sources: PyTorch documentation, "torch.sparse" and "torch.nn.EmbeddingBag"; Kipf and Welling,
    "Semi-Supervised Classification with Graph Convolutional Networks" (2017), which uses sparse products.
    """

    code = "EF028"
    name = "mostly-zero-matmul"
    title = "Multiply by a sparse matrix instead of zeros"
    family = "efficiency"
    risk = Risk.ROUNDING
    confidence = "medium"
    requires = ("whole", "ops", "shapes")

    min_share: float = threshold(0.05, "smallest expected saving, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        if not facts.captured.mostly_zero:
            return "traceopt run saw no matrix that is almost all zero."
        return None if len(_counted(facts).rows) else "No matmul has such a matrix."

    def check(self, facts: Facts) -> Findings:
        products, price = _counted(facts), _price(facts)
        if price.est_ns < self.min_share * facts.step_ns:
            return
        zeros, took_ns = 1 - float(products.used.min()), nodes_per_step_ns(facts, products.rows)
        yield self.finding(
            why=(
                f"Matmuls with a matrix of up to {percent(zeros)} zeros take {ms(took_ns)} of {each_step(facts)}, with "
                "their backward pass. A sparse product multiplies only the other elements."
            ),
            saving=price,
            evidence=node_evidence(facts, products.rows),
            fix=ROWS_OF_IDS if _feeds_a_layer(facts, products) else SAME_MATRIX,
        )

    def passed(self, facts: Facts) -> str:
        share = percent(nodes_per_step_ns(facts, _counted(facts).rows) / facts.step_ns)
        return f"Matmuls with a matrix that is almost all zero take {share} of {the_step(facts)}."


def _counted(facts: Facts) -> ZeroProducts:
    """Without the products that EF012 reports."""
    return facts.zero_products.without(facts.one_hot_products.rows)


def _feeds_a_layer(facts: Facts, products: ZeroProducts) -> bool:
    names = {facts.trace.names[code] for code in facts.slices.name[products.products].tolist()}
    return names == {"aten::linear"}


def _price(facts: Facts) -> Price:
    products = _counted(facts)
    took_ns = node_ns(facts, products.rows)
    low, expected, high = (
        float((took_ns * np.maximum(0.0, 1 - times * products.used)).sum()) / max(1.0, float(took_ns.sum()))
        for times in SLOWER
    )
    return without_nodes(
        facts,
        products.rows,
        low,
        expected,
        f"Assumes that each multiplication of a sparse product takes {SLOWER[2]:.0f} to {SLOWER[0]:.0f} times as long, "
        f"{SLOWER[1]:.0f} times as expected.",
        high=high,
    )
