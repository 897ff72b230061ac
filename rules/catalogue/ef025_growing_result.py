"""EF025: each round appends to a tensor with torch.cat, which copies all rows so far again."""

from __future__ import annotations

from traceopt.rules import (
    Facts,
    Findings,
    Fix,
    Price,
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
)
from traceopt.rules.savings.work.backward_nodes import node_ns, nodes_per_step_ns, without_nodes, without_part_of

LOW, EXPECTED = 0.5, 0.9  # of the time: one concatenation at the end copies each row once


class GrowingResult(Rule):
    """Measures calls of `torch.cat` that append rows to the result of the call before, as the shapes show: the first
    tensor has as many rows as that call returned.

    Why it costs: each call allocates a new tensor and copies all rows so far. For n rounds this is n (n + 1) / 2 copies
    of the rows of a round instead of n, so the loop gets slower with each round.

    How to fix: append to a list, and concatenate once after the loop.

        parts.append(features)                      # not result = torch.cat([result, features])
        result = torch.cat(parts)                   # after the loop

    If each round needs all rows so far, write them into a tensor that is large enough from the start, and use the part
    that is filled.

        result[n : n + len(features)] = features

    When it is wrong: one row at a time does not count, because the keys and values of a decoder may grow like this.
    Neither do tensors that grow along another dimension than the first, as in a dense block, or that have a backward
    pass. The shapes of inputs of several lengths may fit by chance.

    Sources: PyTorch documentation, "torch.cat".
    """

    code = "EF025"
    name = "growing-result"
    title = "Append to a list and concatenate once"
    family = "efficiency"
    confidence = "medium"
    requires = ("whole", "ops", "shapes")

    min_share: float = threshold(0.03, "smallest time of these calls, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        return None if len(facts.growing_results) else "No tensor grows by concatenation."

    def check(self, facts: Facts) -> Findings:
        found = facts.growing_results
        time_ns = nodes_per_step_ns(facts, found.rows)
        if time_ns < self.min_share * facts.step_ns:
            return
        sites = by_calling_site(facts, found.rows, node_ns(facts, found.rows))
        yield self.finding(
            why=(
                f"torch.cat appends to the result of the call before, and copies it again: up to "
                f"{int(found.copied.max()):,} rows to add {int(found.added[found.copied.argmax()]):,}. This takes "
                f"{ms(time_ns)} of {each_step(facts)}, and more with each round."
            ),
            saving=_price(facts),
            evidence=site_evidence(facts, sites, named("aten::cat")),
            locations=site_locations(sites),
            fix=Fix(
                "Append each part to a list, and concatenate once after the loop. If each round needs all rows so far, "
                "write them into a tensor that is large enough from the start.",
                "parts.append(features)      # not result = torch.cat([result, features])\n"
                "result = torch.cat(parts)   # once, after the loop",
            ),
        )

    def passed(self, facts: Facts) -> str:
        share = percent(nodes_per_step_ns(facts, facts.growing_results.rows) / facts.step_ns)
        return f"Copies of tensors that grow take {share} of {the_step(facts)}."


def _price(facts: Facts) -> Price:
    rows = facts.growing_results.rows
    basis = f"Assumes the fix removes {percent(LOW)}, {percent(EXPECTED)} or 100% of these calls' time."
    if not facts.has_gpu:
        return without_nodes(facts, rows, LOW, EXPECTED, basis)
    return without_part_of(facts, rows, (LOW, EXPECTED, 1.0), basis)
