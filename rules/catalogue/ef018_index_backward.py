"""EF018: rows are picked in a way whose backward pass sorts the indices, or takes them one by one."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from traceopt.analyzer.autograd.row_gradients import UNKNOWN_DIM, RowGradients
from traceopt.rules import (
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Price,
    Risk,
    Rule,
    by_site,
    each_step,
    ms,
    named,
    percent,
    site_evidence,
    the_step,
    threshold,
)
from traceopt.rules.savings.measured import gains_nothing
from traceopt.rules.savings.work.backward_nodes import node_ns, products_ns, without_part_of
from traceopt.rules.savings.work.row_gradients import both_ways

AFTER = (6.0, 3.0, 1.0)  # times as long as picking the rows: what is left of the backward pass, low to high saving


class IndexBackward(Rule):
    """Measures the backward pass of `x[indices]` on a GPU, and of `nn.Embedding` on a CPU, compared to picking the
    rows.

    Why it costs: several indices may pick the same row, so its gradients have to be added up. On a GPU, `x[indices]`
    does that in a fixed order: it sorts the indices, and then adds the gradients of equal indices one after the other.
    A small table that is read often, such as a relative position bias, is slowest. On a CPU, an embedding makes a call
    for each index, however short the rows are.

    How to fix: use index_select. It picks the same rows, and its backward pass adds them without sorting.

        rows = x.index_select(0, indices)               # instead of x[indices]
        rows = x.index_select(1, indices)               # instead of x[:, indices]
        rows = x.index_select(0, mask.nonzero()[:, 0])  # instead of x[mask]
        rows = table.weight.index_select(0, ids.flatten()).view(*ids.shape, -1)  # instead of table(ids)

    The saving assumes that the backward pass then takes six, three or one times as long as picking the rows, because
    it reads and writes the same rows. On a CPU that is for each thread of an operator, because the additions use one.
    `traceopt run` and `traceopt measure` measure both ways instead, with indices at random.

    When it is wrong: index_select takes no negative indices. On a GPU it adds in no fixed order, so the last bits
    differ between runs. With torch.use_deterministic_algorithms it sorts as well, and the rule is silent. Gradients in
    16 bits and indices in several dimensions have no saving, because other ways may be as slow. Embeddings with a
    padding_idx do not count. Neither does `x[indices] = y` in the forward pass. Fewer indices than rows have no saving,
    because the gradient is mostly filled with zeros.

    Sources: PyTorch source, `index_put_with_sort_kernel`, `embedding_dense_backward_cpu` and `index_add_`; PyTorch
    documentation of torch.index_select and torch.use_deterministic_algorithms.
    """

    code = "EF018"
    name = "index-backward"
    title = "Pick rows with index_select"
    family = "efficiency"
    effort = Effort.ONE_LINE
    risk = Risk.ROUNDING
    risk_note = "Last bits may differ between runs; no negative indices"
    confidence = "medium"
    requires = ("whole", "ops", "shapes")

    min_share: float = threshold(0.03, "smallest expected saving, as a share of the step, to report")
    min_unpriced_share: float = threshold(0.15, "smallest time on a GPU without a saving, as a share of the step")

    def applies(self, facts: Facts) -> str | None:
        if not len(_counted(facts)):
            return "No backward pass that adds up rows."
        deterministic = facts.captured.environment.deterministic
        return "Deterministic algorithms are on: every way to pick rows sorts." if deterministic else None

    def check(self, facts: Facts) -> Findings:
        found = _counted(facts)
        known = found.take((found.forward >= 0) & (found.dim != UNKNOWN_DIM) & found.wide & found.repeats)
        price = _price(facts, known)
        if gains_nothing(facts, price):
            return
        if price is None or price.share < self.min_share:
            known, price = found, None
        time_ns = products_ns(facts, known.rows)
        if price is None and not (facts.has_gpu and time_ns >= self.min_unpriced_share * facts.step_ns):
            return
        picking_ns = _picking_ns(facts, known)
        yield self.finding(
            why=(
                f"The backward pass of {'indexing' if facts.has_gpu else 'embeddings'} takes {ms(time_ns)} of "
                f"{each_step(facts)}"
                + (f", picking the rows {ms(picking_ns)}. " if picking_ns else ". ")
                + (SORTS if facts.has_gpu else ONE_BY_ONE)
            ),
            saving=price,
            evidence=_evidence(facts, known),
            shares_cause_with=["EF020"],
            fix=Fix(
                "Pick the rows with index_select, whose backward pass adds them up at once. It takes no negative "
                "indices. Flatten indices of several dimensions, and turn a mask into indices with nonzero().",
                _example(facts, known),
            ),
        )

    def passed(self, facts: Facts) -> str:
        share = percent(products_ns(facts, _counted(facts).rows) / facts.step_ns)
        return f"The backward pass of picking rows takes {share} of {the_step(facts)}."


SORTS = "It sorts the indices, and adds the gradients of equal indices one after the other."
ONE_BY_ONE = "It makes a call for each index, however short the rows are."


def _counted(facts: Facts) -> RowGradients:
    """Indexing on a GPU, embeddings on a CPU: index_select does the others no better."""
    found = facts.row_gradients
    return found.take(found.embedding != facts.has_gpu)


def _picking_ns(facts: Facts, found: RowGradients) -> float:
    """What picking the rows takes per step; 0 if that is unknown."""
    return products_ns(facts, found.picks) if len(found.picks) else 0.0


def _price(facts: Facts, found: RowGradients) -> Price | None:
    threads = 1 if facts.has_gpu else facts.captured.environment.threads
    backward_ns, picking_ns = products_ns(facts, found.rows), _picking_ns(facts, found)
    if threads is None or not backward_ns or not picking_ns:
        return None
    work = both_ways(facts, found)
    if work.speedup is not None:
        low, expected, high = work.shares
        basis = f"{work.words}."
    else:
        low, expected, high = (max(0.0, 1 - times * threads * picking_ns / backward_ns) for times in AFTER)
        basis = "Assumes that the backward pass then takes 6, 3 or 1 times as long as picking the rows."
    return replace(without_part_of(facts, found.rows, (low, expected, high), basis), experiments=work.experiments)


def _evidence(facts: Facts, found: RowGradients) -> list[Evidence]:
    """A row for each line that picks rows, most expensive first."""
    what = named("IndexBackward0" if facts.has_gpu else "EmbeddingBackward0")
    sites = by_site(facts, np.where(found.forward >= 0, found.forward, found.rows), node_ns(facts, found.rows))
    return site_evidence(facts, sites, what)


def _example(facts: Facts, found: RowGradients) -> str:
    if not facts.has_gpu:
        return "rows = table.weight.index_select(0, ids.flatten()).view(*ids.shape, -1)  # instead of table(ids)"
    dim = found.usual_dim
    return f"rows = x.index_select({dim}, indices)  # instead of x[{':, ' * dim}indices]"
