"""EF027: a step builds the same mask, table or matrix several times, from nothing that is trained."""

from __future__ import annotations

import numpy as np

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


class RepeatedConstant(Rule):
    """Measures chains of operators that follow each other, create a tensor, combine tensors without gradients, and run
    several times in a step with the same operators, shapes and arguments: a causal mask or rotary tables in each layer,
    a sparse adjacency matrix that each layer makes dense and normalizes.

    Why it costs: the result is the same each time, as nothing that it is made of is trained.

    How to fix: build it once before the loop, or once per step, and pass it to the layers. A module keeps it with
    register_buffer.

        self.register_buffer("mask", torch.ones(length, length).triu(1).bool(), persistent=False)

    A sparse matrix can stay sparse: normalize its values once, and multiply with torch.sparse.mm.

        degree = torch.sparse.sum(a, 1).to_dense().pow(-0.5)                    # once
        rows, columns = a.indices()
        a = torch.sparse_coo_tensor(a.indices(), degree[rows] * a.values() * degree[columns], a.shape).coalesce()
        y = torch.sparse.mm(a, self.lin(x))                                     # in each layer

    When it is wrong: the tensors may be made of data that differ each time, which a trace does not show. Its range
    therefore begins at 0. The expected saving is for one such chain that is left in each step.

    Sources: PyTorch documentation, "torch.nn.Module.register_buffer" and "torch.sparse".
    """

    code = "EF027"
    name = "repeated-constant"
    title = "Build once what each layer builds again"
    family = "efficiency"
    risk = Risk.CORRECTNESS
    risk_note = "Wrong if it is made of data that differ each time"
    confidence = "low"
    requires = ("whole", "ops", "shapes")

    min_share: float = threshold(0.05, "smallest time of such operators, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        return None if len(facts.repeated_constants) else "No step builds the same tensor again."

    def check(self, facts: Facts) -> Findings:
        built = facts.repeated_constants
        time_ns = nodes_per_step_ns(facts, built.rows)
        if time_ns < self.min_share * facts.step_ns:
            return
        yield self.finding(
            why=(
                f"Operators that create a tensor and combine it with others, none of which has a gradient, take "
                f"{ms(time_ns)} of {each_step(facts)}. They run up to {int(built.times.max()):,} times in a step, with "
                "the same shapes and arguments."
            ),
            saving=_price(facts),
            evidence=node_evidence(facts, built.rows, "Operators without gradients", 4),
            fix=Fix(
                "If the result is the same each time, build it once before the loop, or once per step, and pass it on. "
                "A sparse matrix can stay sparse: torch.sparse.mm multiplies by it.",
                'self.register_buffer("mask", build_mask(length), persistent=False)  # in __init__, not in forward',
            ),
        )

    def passed(self, facts: Facts) -> str:
        share = percent(nodes_per_step_ns(facts, facts.repeated_constants.rows) / facts.step_ns)
        return f"Tensors without gradients that are built several times take {share} of {the_step(facts)}."


def _price(facts: Facts) -> Price:
    built = facts.repeated_constants
    took_ns = node_ns(facts, built.rows)
    expected = float((took_ns * (1 - 1 / built.times)).sum() / max(1, np.sum(took_ns)))
    basis = f"Assumes one of them is left in each step ({percent(expected)} of their time goes), or all or none go."
    return without_nodes(facts, built.rows, 0.0, expected, basis)
