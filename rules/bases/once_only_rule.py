"""Base of the rules about one-time work: it belongs to the start of a run and costs time if it recurs in steps."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.result.finding import Confidence, Evidence, Fix
from traceopt.result.words.message import ms, percent
from traceopt.rules.evidence import SiteCost, by_site, site_evidence, site_locations
from traceopt.rules.rule import Findings, Rule, threshold
from traceopt.rules.savings.price import Price
from traceopt.rules.savings.pricing import priced, without_calls
from traceopt.rules.step_words import the_step


class SteadyRule(Rule):
    """Base of the rules about work that should be over by the steady-state steps. A subclass names cause and fix."""

    cause: ClassVar[Cause]
    does: ClassVar[str]  # what happens, for the sentence "... in 3 of 6 steps"
    fix: ClassVar[Fix]
    family: ClassVar[str] = "launch and dispatch"
    requires: ClassVar[tuple[str, ...]] = ("gpu", "whole", "launches")

    min_share: float = threshold(0.02, "smallest cost per step on average, as a share of the step, to report")
    min_step_us: float = threshold(500.0, "smallest GPU wait for a step to count as affected, in microseconds")

    def applies(self, facts: Facts) -> str | None:
        if facts.recorded_steps.count < 3:
            return (
                f"Too few steps were recorded ({facts.recorded_steps.count}) to separate start-up from recurring work."
            )
        return None

    def check(self, facts: Facts) -> Findings:
        cost = self.cost(facts)
        hit = np.flatnonzero(cost >= self.min_step_us * 1e3)
        hit = hit[hit > 0]  # the first step counts as start-up
        steps = facts.recorded_steps
        if not len(hit) or cost[hit].sum() / steps.count < self.min_share * facts.step_ns:
            return
        sites = self.sites(facts, hit)
        names = ", ".join(steps.names[i] for i in hit[:3]) + (", ..." if len(hit) > 3 else "")
        wait = ms(float(cost[hit].mean()))
        yield self.finding(
            why=f"{self.does} in {len(hit)} of {steps.count} steps ({names}), and the GPU waits {wait} in each.",
            saving=self._saving(facts, cost, hit),
            evidence=[*self.more(facts), *site_evidence(facts, sites)],
            locations=site_locations(sites),
            fix=self.advice(facts),
            confidence=self._confidence(hit),
            shares_cause_with=["EF002"],
        )

    def cost(self, facts: Facts) -> I8:
        """GPU starvation from this cause in each recorded step, ns."""
        return facts.of_every_step.idle.of_steps(self.cause)

    def rows(self, facts: Facts, hit: I8) -> I8:
        """The slices of this cause in the affected steps."""
        rows = facts.of_every_step.host.rows_of(self.cause)
        return rows[facts.recorded_steps.host_in(hit, facts.slices.start[rows])]

    def sites(self, facts: Facts, hit: I8) -> list[SiteCost]:
        """The call sites of this cause in the affected steps."""
        rows = self.rows(facts, hit)
        return by_site(
            facts, rows, facts.of_every_step.gaps.starved.within(facts.slices.start[rows], facts.slices.end[rows])
        )

    def advice(self, facts: Facts) -> Fix:  # noqa: ARG002
        """The fix; a subclass may have another for some devices."""
        return self.fix

    def more(self, facts: Facts) -> list[Evidence]:  # noqa: ARG002
        """Evidence rows in addition to the call sites."""
        return []

    def _saving(self, facts: Facts, cost: I8, hit: I8) -> Price | None:
        """Spread over the typical steps; None for a one-off, which may never recur."""
        hit = np.intersect1d(hit, facts.recorded_steps.typical_rows)
        if len(hit) < 2:
            return None
        count = facts.steps.count
        total = float(cost[hit].sum())
        return priced(
            facts,
            ((total - float(cost[hit].max())) / count, total / count, total / count),
            without_calls(facts, self.rows(facts, hit)),
            "Assumes it is gone from all steps; the low end counts the longest occurrence as a one-off.",
        )

    def _confidence(self, hit: I8) -> Confidence:
        return "low" if len(hit) == 1 else "medium" if len(hit) == 2 else "high"

    def passed(self, facts: Facts) -> str:
        share = median(self.cost(facts)) / facts.step_ns
        return f"This leaves the GPU idle for {percent(share)} of {the_step(facts)}."
