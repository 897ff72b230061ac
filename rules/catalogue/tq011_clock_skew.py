"""TQ011: the ranks' clocks differ or cannot be compared."""

from __future__ import annotations

import numpy as np

from traceopt.rules import TRACE_QUALITY, Findings, Fix, RunFacts, RunRule, ms, rank_name, threshold


class ClockSkew(RunRule):
    """Compares the ends of collectives that no rank can leave before all have entered. On synchronized clocks, they end
    at the same moment on every rank.

    Why it matters: times of two ranks cannot be compared directly. traceopt shifts each rank by the median of the
    differences, so its findings about ranks hold. Other viewers of merged traces show the ranks shifted against each
    other.

    How to fix: synchronize the machines' clocks.

        chronyc tracking          # is the clock of each machine synchronized, and how well?
        systemctl enable --now chronyd

    When it is wrong: a rank that always leaves a collective late (a slow copy out of it) seems to have a slow clock.

    Sources: HTA issue 107; Mills, "Network Time Protocol" (RFC 5905).
    """

    code = "TQ011"
    name = "clock-skew"
    title = "Synchronize the machines' clocks"
    family = TRACE_QUALITY

    min_skew_us: float = threshold(1000.0, "smallest clock difference between two ranks, in microseconds, to report")

    def lacks_ranks(self, run: RunFacts) -> str | None:
        """Ranks without a common collective are not missing here: this rule reports them."""
        if (lack := run.incomparable) is not None:
            return lack
        return None if all(rank.has_clock for rank in run.ranks) else "A trace does not state when it was recorded."

    def check_run(self, run: RunFacts) -> Findings:
        offset = run.clock_offset
        apart = np.flatnonzero(np.isnan(offset))
        spread = float(np.nanmax(offset) - np.nanmin(offset))
        if spread < self.min_skew_us * 1e3 and not (len(apart) and run.matched.count):
            return
        text = f"The clocks of {len(run.ranks)} ranks differ by up to {ms(spread)}; traceopt corrects the times."
        if len(apart):
            names = ", ".join(rank_name(run, int(index)) for index in apart[:4])
            text = f"The clock of {names} cannot be compared with the other ranks: too few collectives in common."
        yield self.finding(why=text, fix=Fix("Keep the machines' clocks synchronized.", "chronyc tracking"))

    def passed_run(self, run: RunFacts) -> str:
        offset = run.clock_offset
        if np.isnan(offset).all() or not run.matched.count:
            return "The ranks share no collective to compare their clocks by."
        spread = float(np.nanmax(offset) - np.nanmin(offset))
        return f"The clocks of {len(run.ranks)} ranks differ by at most {ms(spread)}."
