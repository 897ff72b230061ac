"""EF026: all values are sorted, and only the first few are used."""

from __future__ import annotations

from traceopt.rules import (
    Facts,
    Findings,
    Fix,
    Price,
    Rule,
    each_step,
    ms,
    percent,
    the_step,
    threshold,
)
from traceopt.rules.savings.work.backward_nodes import (
    node_evidence,
    node_ns,
    nodes_per_step_ns,
    without_nodes,
    without_part_of,
)

# Of the time: low, expected, high. On a CPU topk took 1 to 42 % of it, for 1 to 12 % of 1,000 to 30,000 values.
SHARES = 0.5, 0.85, 0.95
SHARES_ON_GPU = 0.0, 0.5, 0.95  # was not measured there


class FullSort(Rule):
    """Measures calls of `torch.sort` and `torch.argsort` whose result is cut to an eighth or less of the sorted values
    by the next operator, as the shapes and arguments show.

    Why it costs: sorting n values takes about n log n comparisons and writes all of them, with their indices. Finding
    the first k reads each value about once.

    How to fix: ask for the first values.

        values, indices = torch.topk(x, k, dim=1)                      # not x.sort(dim=1, descending=True), cut to k
        indices = torch.topk(x, k, dim=1, largest=False).indices       # not torch.argsort(x, dim=1)[:, :k]

    One value at a rank is `torch.kthvalue`.

    When it is wrong: the script uses the rest of the order as well. If values are equal, topk may choose others of
    them. On a GPU the gain was not measured: the range begins at 0.

    Sources: PyTorch documentation, "torch.topk".
    """

    code = "EF026"
    name = "full-sort"
    title = "Use torch.topk instead of sorting all values"
    family = "efficiency"
    confidence = "medium"
    requires = ("whole", "ops", "shapes")

    min_share: float = threshold(0.03, "smallest time of these calls, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        return None if len(facts.full_sorts) else "No sort is cut to its first values."

    def check(self, facts: Facts) -> Findings:
        sorts = facts.full_sorts
        time_ns = nodes_per_step_ns(facts, sorts.rows)
        if time_ns < self.min_share * facts.step_ns:
            return
        longest = int(node_ns(facts, sorts.rows).argmax())
        yield self.finding(
            why=(
                f"Sorts take {ms(time_ns)} of {each_step(facts)}, and what follows them takes only the first values: "
                f"{sorts.kept[longest]:,} of {sorts.values[longest]:,}."
            ),
            saving=_price(facts),
            evidence=node_evidence(facts, sorts.rows, "Sorts of all values"),
            fix=Fix(
                "Find the first values with torch.topk. largest=False finds the smallest ones, in ascending order.",
                "values, indices = torch.topk(x, k, dim=1)",
            ),
        )

    def passed(self, facts: Facts) -> str:
        share = percent(nodes_per_step_ns(facts, facts.full_sorts.rows) / facts.step_ns)
        return f"Sorts that are cut to their first values take {share} of {the_step(facts)}."


def _price(facts: Facts) -> Price:
    rows, shares = facts.full_sorts.rows, SHARES_ON_GPU if facts.has_gpu else SHARES
    low, expected, high = shares
    basis = f"Assumes topk takes {percent(1 - low)}, {percent(1 - expected)} or {percent(1 - high)} of the sorts' time."
    if facts.has_gpu:
        return without_part_of(facts, rows, shares, f"{basis} Not measured on a GPU.")
    return without_nodes(facts, rows, low, expected, basis, high=high)
