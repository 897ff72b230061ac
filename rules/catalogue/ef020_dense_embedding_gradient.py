"""EF020: a step looks up few rows of a large table, but the gradient and the update are those of the whole table."""

from __future__ import annotations

from msgspec.structs import replace

from traceopt.rules import (
    I8,
    Effort,
    Facts,
    Findings,
    Fix,
    Price,
    Risk,
    Rule,
    SetArguments,
    by_calling_site,
    each_step,
    ms,
    percent,
    site_evidence,
    the_step,
    threshold,
)
from traceopt.rules.fixes.advice.constructed import optimizer_classes
from traceopt.rules.savings.work.backward_nodes import node_ns, nodes_per_step_ns, without_nodes
from traceopt.rules.savings.work.lookups import with_sparse_gradients

# Of what the tables take beyond the rows that are looked up: a sparse gradient costs sorting and more launches. GPUs
# fill memory so fast that this may be much of it.
LOW, LOW_ON_GPU, EXPECTED = 0.75, 0.3, 0.95
TAKE_SPARSE = frozenset({"SGD", "Adagrad"})
SPARSE = SetArguments("nn.Embedding", {"sparse": "True"})
EXACT = "weight_decay and fused=True raise an error, and momentum keeps a growing buffer"
LAZY = "SparseAdam updates the moments of a row only in steps that look it up"


class DenseEmbeddingGradient(Rule):
    """Measures lookups in tables (nn.Embedding, nn.EmbeddingBag, indexing of a parameter) of which a step reads less
    than a quarter: the backward node, and their part of zero_grad and the optimizer.

    Why it costs: the gradient of a lookup is zero for all rows that were not read. Autograd fills a tensor of the size
    of the table with zeros, and the optimizer reads and writes the whole table. For 2,000 rows of a table of 300,000
    that is 150 times the memory traffic.

    How to fix: ask for sparse gradients, and use an optimizer that takes them.

        table = nn.Embedding(300_000, 64, sparse=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)      # or Adagrad

    Instead of Adam, give the table an optimizer of its own.

        sparse = torch.optim.SparseAdam(table.parameters(), lr=1e-3)
        dense = torch.optim.Adam(others, lr=1e-3)                     # all other parameters

    SGD and Adagrad then train as before, without weight_decay, momentum and fused=True: these raise an error or keep a
    growing buffer. SparseAdam leaves the moments of rows that were not read as they are, so it trains a little
    differently. All other optimizers of torch.optim raise an error.

    `traceopt run` and `traceopt measure` measure both ways for SGD, if all such tables have one size.

    When it is wrong: clip_grad_norm_ and clip_grad_value_ raise an error for sparse gradients. NCCL does not average
    them over ranks, so runs of several ranks do not count. Neither do tables that another operator reads too, such as
    an output layer with tied weights, or a penalty of their weights: their gradient is dense. nn.EmbeddingBag has no
    sparse gradient in the mode "max". On a GPU the gain is smaller, because it fills memory fast and sparse gradients
    need more kernels.

    Sources: PyTorch documentation, "torch.nn.Embedding" (sparse) and "torch.optim.SparseAdam".
    """

    code = "EF020"
    name = "dense-embedding-gradient"
    title = "Use sparse gradients for the large embedding"
    family = "efficiency"
    risk = Risk.CONVERGENCE
    confidence = "medium"
    requires = ("work", "whole", "ops", "shapes")

    min_share: float = threshold(
        0.05, "smallest time of these gradients and updates, as a share of the step, to report"
    )
    min_rows: int = threshold(1000, "fewest rows of a table to count: the gradient of a small one takes no time")

    def applies(self, facts: Facts) -> str | None:
        if (facts.trace.meta.world_size or 1) > 1:
            return "Sparse gradients are not averaged over ranks."
        return None if len(facts.dense_gradients) else "No step looks up few rows of a table that is trained."

    def check(self, facts: Facts) -> Findings:
        dense = facts.dense_gradients
        rows, width = dense.tables[0]
        time_ns = _time_ns(facts)
        if rows < self.min_rows or time_ns < self.min_share * facts.step_ns:
            return
        lookups = by_calling_site(facts, dense.lookups, node_ns(facts, dense.nodes))
        classes = optimizer_classes(facts)
        is_plain = dense.are_added and not dense.are_read and classes == ["SGD"]
        tables = "a table" if len(dense.tables) == 1 else "tables"
        yield self.finding(
            why=(
                f"A step looks up at most {percent(dense.used)} of the rows of {tables} of up to {rows:,} x {width:,} "
                "numbers. The gradient has all rows, and so has the update. With zero_grad, this takes "
                f"{ms(time_ns)} of {each_step(facts)}."
            ),
            saving=_price(facts),
            evidence=site_evidence(facts, lookups, "Backward of lookups"),
            fix=Fix("Create the table with sparse=True.", edits=[SPARSE])
            if is_plain
            else _fix(classes, dense.are_read),
            effort=Effort.ONE_LINE if is_plain else None,
            risk=Risk.NONE if is_plain else None,
            risk_note=None if is_plain else EXACT if _take_sparse(classes) else LAZY,
        )

    def passed(self, facts: Facts) -> str:
        share = percent(_time_ns(facts) / facts.step_ns)
        return f"Gradients and updates of tables of which few rows are used take {share} of {the_step(facts)}."


def _take_sparse(classes: list[str]) -> bool:
    """Whether these optimizers are known to take sparse gradients."""
    return bool(classes) and TAKE_SPARSE.issuperset(classes)


def _fix(classes: list[str], are_read: bool) -> Fix:
    read = " What reads the gradients before the update, such as clip_grad_norm_, has to leave the table out."
    clipped = read if are_read else ""
    if _take_sparse(classes):
        return Fix(
            "Create the table with sparse=True. SGD and Adagrad take sparse gradients without weight_decay, momentum "
            f"and fused=True. If yours has one of these, give the table an optimizer of its own.{clipped}",
            SPARSE.code,
        )
    return Fix(
        "Create the table with sparse=True, and give it an optimizer of its own, such as SparseAdam. "
        f"All others of torch.optim but SGD and Adagrad raise an error for sparse gradients.{clipped}",
        "table = nn.Embedding(rows, width, sparse=True)\n"
        "sparse = torch.optim.SparseAdam(table.parameters(), lr=1e-3)  # the other parameters keep their optimizer",
    )


def _price(facts: Facts) -> Price:
    dense = facts.dense_gradients
    low, expected = (share * (1 - dense.used) for share in (LOW_ON_GPU if facts.has_gpu else LOW, EXPECTED))
    high = 1.0
    basis = f"Assumes that sparse gradients remove {percent(low)}, {percent(expected)} or 100% of the time"
    work = with_sparse_gradients(facts, _time_ns(facts)) if optimizer_classes(facts) == ["SGD"] else None
    if work is not None and work.speedup is not None:
        low, expected, high = work.shares
        basis = f"{work.words}. Sparse gradients remove as much of the time"
    price = without_nodes(
        facts,
        dense.all_nodes,
        low,
        expected,
        f"{basis} of the backward of these lookups, and of the {percent(dense.element_share)} of zero_grad and the "
        "optimizer that are theirs.",
        (_updates(facts), (low * dense.element_share, expected * dense.element_share, high * dense.element_share)),
        high=high,
    )
    return price if work is None else replace(price, experiments=work.experiments)


def _time_ns(facts: Facts) -> float:
    """Per step: the backward of lookups, and the part of zero_grad and the optimizer for their tables."""
    dense = facts.dense_gradients
    return nodes_per_step_ns(facts, dense.all_nodes) + dense.element_share * nodes_per_step_ns(facts, _updates(facts))


def _updates(facts: Facts) -> I8:
    """Calls of zero_grad and the optimizer in the window, except those that run the backward pass themselves."""
    regions = facts.regions
    mine = (regions.optimizer | regions.zero_grad) & ~facts.slices.encloses(regions.backward)
    return regions.calls(mine, facts.steps)
