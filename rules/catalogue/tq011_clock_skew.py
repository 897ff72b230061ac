"""TQ011: the ranks' clocks differ, or cannot be compared."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from traceopt.analyzer.ranks.run_facts import RunFacts
from traceopt.result.finding import Fix
from traceopt.result.quantities import ms
from traceopt.rules.bases.rank_rule import RunRule, rank_name
from traceopt.rules.registry import TRACE_QUALITY
from traceopt.rules.rule import Findings, threshold


class ClockSkew(RunRule):
    """Compares the ends of collectives that no rank can leave before all have entered: on true clocks they are the same
    moment on every rank.

    Why it matters: the times of two ranks cannot be compared as they stand. This program moves each rank by the median
    of the differences, so that its findings about ranks hold; other viewers of merged traces show the ranks apart.

    How to fix: let the machines keep one time.

        chronyc tracking          # is the clock of each machine synchronised, and how well?
        systemctl enable --now chronyd

    When it is wrong: a rank that leaves a collective late every time (a slow copy out of it) seems to have a slow
    clock.

    Sources: HTA issue 107; Mills, "Network Time Protocol" (RFC 5905).
    """

    code: ClassVar[str] = "TQ011"
    name: ClassVar[str] = "clock-skew"
    title: ClassVar[str] = "Synchronise the clocks of the machines"
    family: ClassVar[str] = TRACE_QUALITY

    min_skew_us: float = threshold(1000.0, "smallest difference between two ranks' clocks, in microseconds, to report")

    def lacks_ranks(self, run: RunFacts) -> str | None:
        """A rank whose clock cannot be compared is what this rule tells."""
        if (lack := run.incomparable) is not None:
            return lack
        return None if all(rank.has_clock for rank in run.ranks) else "A trace does not say when it was recorded."

    def check_run(self, run: RunFacts) -> Findings:
        offset = run.clock_offset
        apart = np.flatnonzero(np.isnan(offset))
        spread = float(np.nanmax(offset) - np.nanmin(offset))
        if spread < self.min_skew_us * 1e3 and not (len(apart) and run.matched.count):
            return
        text = f"The clocks of {len(run.ranks)} ranks differ by up to {ms(spread)}; the times are moved by that."
        if len(apart):
            names = ", ".join(rank_name(run, int(index)) for index in apart[:4])
            text = f"The clock of {names} cannot be compared with the others': too few collectives in common."
        yield self.finding(
            why=text,
            fix=Fix("Keep the clocks of the machines synchronised.", "chronyc tracking"),
            saving=None,
            evidence=[],
        )

    def passed_run(self, run: RunFacts) -> str:
        offset = run.clock_offset
        if np.isnan(offset).all() or not run.matched.count:
            return "The ranks share no collective whose end would show their clocks."
        spread = float(np.nanmax(offset) - np.nanmin(offset))
        return f"The clocks of {len(run.ranks)} ranks differ by {ms(spread)} at most."
