"""EF014: the step computes values that only the host reads, such as statistics for a log."""

from __future__ import annotations

from traceopt.rules import (
    I8,
    Facts,
    Findings,
    Fix,
    Risk,
    Rule,
    by_site,
    each_step,
    ms,
    name_of,
    site_evidence,
    the_step,
    threshold,
)
from traceopt.rules.savings.work.backward_nodes import node_ns, nodes_per_step_ns

MOST_NAMED = 3


class ValuesForTheLog(Rule):
    """Measures operators on lines that read a value, such as `x.std().item()`, if no operator of the line needs a
    gradient or runs a matmul, a convolution or attention, and no `if` of the line asks for the value of a tensor. On a
    GPU it is the time of their kernels.

    Why it costs: the mean, standard deviation, norm or quantile of an activation or gradient reads all of its elements,
    and a quantile sorts them. Watching every layer can take longer than training it.

    How to fix: compute the values every N steps, or of a sample of the elements.

        if step % 50 == 0:
            log(std=flat.std().item(), q95=flat[::100].quantile(0.95).item())

    When it is wrong: the training may need the value in each step, for example to decide what to do next. The finding
    therefore has no saving.

    Sources: PyTorch Performance Tuning Guide, "Avoid unnecessary CPU-GPU synchronization".
    """

    code = "EF014"
    name = "values-for-the-log"
    title = "Compute values for the log every N steps"
    family = "efficiency"
    risk = Risk.CORRECTNESS
    risk_note = "Wrong if the training needs the values in each step"
    confidence = "low"
    requires = ("work", "whole", "ops", "stacks")

    min_share: float = threshold(0.05, "smallest time of these operators, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        return None if facts.trains else "This run does not train."

    def check(self, facts: Facts) -> Findings:
        rows = facts.operators_for_host_reads
        time_ns = nodes_per_step_ns(facts, rows)
        if time_ns < self.min_share * facts.step_ns:
            return
        sites = by_site(facts, rows, node_ns(facts, rows))
        yield self.finding(
            why=(
                f"Operators whose values are only read take {ms(time_ns)} of {each_step(facts)}: "
                f"{', '.join(_longest(facts, rows))}. No gradient and no layer depends on them on these lines."
            ),
            evidence=site_evidence(facts, sites, "Operators on a line that reads a value", 4),
            fix=Fix(
                "If the values are for a log, compute them every N steps, or of a sample of the elements.",
                "if step % 50 == 0:\n    log(std=flat.std().item())",
            ),
        )

    def passed(self, facts: Facts) -> str:
        time_ns = nodes_per_step_ns(facts, facts.operators_for_host_reads)
        return f"Operators whose values are only read take {ms(time_ns)} of {the_step(facts)}."


def _longest(facts: Facts, rows: I8) -> list[str]:
    """Names of the operators that take most of the time."""
    total: dict[str, int] = {}
    for row, ns in zip(rows.tolist(), node_ns(facts, rows).tolist(), strict=True):
        name = name_of(facts, row).removeprefix("aten::")
        total[name] = total.get(name, 0) + ns
    return sorted(total, key=lambda name: -total[name])[:MOST_NAMED]
