"""EF010: the forward pass indexes a tensor in a loop, and each backward step fills a tensor of its whole size."""

from __future__ import annotations

import numpy as np

from traceopt.rules import (
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Rule,
    SiteCost,
    by_calling_site,
    each_step,
    ms,
    per_step,
    rate,
    the_step,
    threshold,
    us,
)
from traceopt.rules.savings.work.backward_nodes import node_ns, nodes_per_step_ns, without_nodes

SPLIT = Fix(
    "If the indices do not overlap, split the tensor with unbind() or split() before the loop. If the loop runs over "
    "time steps, a fused layer such as nn.LSTM or nn.GRU is faster still.",
    "for x_t in x.unbind(1):  # instead of x[:, t]",
)
GROUPS = Fix(
    "If each row is picked once, sort the rows by group and split them before the loop. Sums, means and maxima of "
    "groups need no loop: torch.scatter_reduce or index_add_ computes all of them at once.",
    "for rows in x[group.argsort()].split(group.bincount().tolist()):  # instead of x[group == g]",
)
LOW, EXPECTED = 0.6, 0.9  # of the nodes' time: the parts of the gradient are still put together once


class IndexingInLoop(Rule):
    """Measures the backward pass of `x[:, t]`, `x[a:b]` and `x[group == g]` on lines that index many times in one call
    of their function, with gradients on.

    Why it costs: the gradient of an indexed tensor is zero except in the indexed part. Autograd creates a tensor of the
    whole size for every index, fills it with zeros, writes the part, and adds it to those of the other indices. For a
    sequence of 100 steps that is 100 times the memory traffic of the sequence.

    How to fix: split the tensor once before the loop. The backward pass then puts the parts together once.

        for x_t in x.unbind(1):      # instead of: for t in range(x.shape[1]): x_t = x[:, t]
            h = cell(x_t, h)

    For ranges use `x.split(size)`; for a loop over time steps a fused layer such as nn.LSTM is faster still. Rows of
    groups, such as the nodes of each graph, are sorted once and split; their sums, means and maxima need no loop.

        for rows in x[group.argsort()].split(group.bincount().tolist()):   # instead of x[group == g]
        means = torch.zeros(groups, size).scatter_reduce(0, group[:, None].expand_as(x), x, "mean", include_self=False)

    When it is wrong: indices that overlap or depend on the data cannot be split. A loop over the elements of a small
    tensor does not count; LB002 reports it.

    Sources: PyTorch documentation, "torch.unbind"; PyTorch source, `select_backward` and `slice_backward`.
    """

    code = "EF010"
    name = "indexing-in-loop"
    title = "Split the tensor once instead of indexing it in a loop"
    family = "efficiency"
    effort = Effort.ONE_LINE
    confidence = "medium"
    requires = ("whole", "ops", "stacks")

    min_share: float = threshold(0.03, "smallest time of these backward nodes, as a share of the step, to report")
    min_calls: int = threshold(16, "fewest indexing operations of a line in one call of its function to count")
    min_node_us: float = threshold(
        30.0, "smallest median time of such a node in a CPU-only run, in microseconds: shorter ones fill small tensors"
    )

    def applies(self, facts: Facts) -> str | None:
        return None if facts.regions.backward.any() else "The trace shows no backward pass."

    def check(self, facts: Facts) -> Findings:
        cells = facts.recurrent_cells
        loops = {site.location for site in by_calling_site(facts, cells, node_ns(facts, cells))}
        for site in self._sites(facts):
            time_ns, by_rows = site.cost_ns / facts.steps.count, bool(facts.indexes_by_rows[site.rows].all())
            if time_ns < self.min_share * facts.step_ns:
                continue
            yield self.finding(
                title="Sort the rows by group once instead of picking them in a loop" if by_rows else None,
                why=(
                    f"A line indexes a tensor {site.calls / facts.steps.count:,.0f} times {per_step(facts)}. For each, "
                    "the backward pass fills a tensor of the whole size with zeros and adds it up. This takes "
                    f"{ms(time_ns)} of {each_step(facts)}."
                ),
                saving=without_nodes(
                    facts,
                    site.rows.astype(np.int64),
                    LOW,
                    EXPECTED,
                    "Assumes the fix removes 60%, 90% or 100% of these backward nodes.",
                ),
                evidence=[
                    Evidence(
                        "Backward of indexing",
                        us(time_ns),
                        rate(site.calls / facts.steps.count),
                        location=site.location,
                    )
                ],
                fix=GROUPS if by_rows else SPLIT,
                shares_cause_with=["EF018"] if by_rows else ["EF011"] if site.location in loops else [],
            )

    def passed(self, facts: Facts) -> str:
        time_ns = nodes_per_step_ns(facts, facts.indexing_backward)
        return f"The backward pass of indexing takes {ms(time_ns)} of {the_step(facts)}."

    def _sites(self, facts: Facts) -> list[SiteCost]:
        nodes = facts.indexing_backward
        sites = by_calling_site(facts, nodes, node_ns(facts, nodes))
        return [
            site
            for site in sites
            if site.location is not None
            and facts.call_sites.times_in_a_call(site.rows) >= self.min_calls
            and (facts.has_gpu or _median_ns(facts, site) >= self.min_node_us * 1e3)
        ]


def _median_ns(facts: Facts, site: SiteCost) -> float:
    return float(np.median(facts.slices.end[site.rows] - facts.slices.start[site.rows]))
