"""LB006: Python code holds the launching thread, and the GPU starves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.intervals import Intervals, intersect, union
from traceopt.analyzer.replay.changes import RemoveHost
from traceopt.rules.common import (
    by_site,
    locations,
    ms,
    name_of,
    percent,
    python_amount,
    site_evidence,
    typical_ns,
)
from traceopt.rules.finding import Confidence, Finding, Fix
from traceopt.rules.pricing import priced
from traceopt.rules.rule import Rule, threshold

SAMPLE_NS = 100_000


@dataclass(frozen=True)
class PythonBound(Rule):
    """Measures stretches of a millisecond and more in which the GPU starves while the launching thread runs Python code
    that is no operator, no data loader, no known input work, no logging.

    Why it costs: nothing is launched while Python computes something itself: walking modules, building lists, masks or
    indices in loops, hooks of a framework.

    How to fix: do it once instead of every step, vectorise it, or move it to where the GPU has work meanwhile.

        modules = dict(model.named_modules())       # once, outside the loop
        mask = torch.arange(n, device="cuda") < k   # instead of a Python loop over n

    When it is wrong: the profiler slows Python calls more than anything else, so the true cost is smaller, by half in
    code that makes many small calls.

    Sources: Python documentation, "The Python Profilers" (overhead of tracing calls).
    """

    code: ClassVar[str] = "LB006"
    name: ClassVar[str] = "python-bound"
    title: ClassVar[str] = "Take Python work out of the step"
    family: ClassVar[str] = "launch and dispatch"
    effort: ClassVar[str] = "Some refactoring"
    confidence: ClassVar[Confidence] = "medium"
    requires: ClassVar[tuple[str, ...]] = ("gpu", "whole", "launches", "stacks")

    min_share: float = threshold(0.03, "smallest starvation, as a share of the median step, to report")

    def check(self, facts: Facts) -> Iterator[Finding]:
        amount = python_amount(facts)
        stall = typical_ns(facts, facts.gaps.start, amount)
        if stall < self.min_share * facts.step_ns:
            return
        area = self._area(facts)
        rows, cost = self._samples(facts, area)
        sites = by_site(facts, rows, cost)
        yield self.finding(
            why=f"Python holds the launching thread for {ms(stall)} of each {ms(facts.step_ns)} step; the GPU starves.",
            saving=priced(
                facts,
                (0.3 * stall, 0.8 * stall, stall),
                [RemoveHost(area, 0.8)],
                "The measured starvation, less what the profiler adds to Python.",
                low=[RemoveHost(area, 0.3)],
                high=[RemoveHost(area)],
            ),
            evidence=site_evidence(facts, sites, lambda site: name_of(facts, int(site.rows[0]))),
            locations=locations(sites),
            fix=Fix(
                "Do this work once, vectorise it, or move it to a place where the GPU is busy.",
                "modules = dict(model.named_modules())  # once, outside the loop",
            ),
        )

    def _area(self, facts: Facts) -> Intervals:
        """When Python runs in long gaps."""
        gaps = facts.gaps
        long = python_amount(facts) > 0
        python = facts.host.of_thread_else(facts.steps.thread, -1)["python"]
        return intersect(python, union(gaps.start[long], gaps.starved_end[long]))

    def _samples(self, facts: Facts, area: Intervals) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """What the training thread runs at points of this time, and how much time each point stands for."""
        times = np.concatenate(
            [np.arange(a, b, SAMPLE_NS) for a, b in zip(area.start.tolist(), area.end.tolist(), strict=True)]
            or [np.empty(0, np.int64)]
        )
        rows = facts.slices.at(facts.steps.thread, times).astype(np.int64)
        return rows[rows >= 0], np.full(int((rows >= 0).sum()), SAMPLE_NS, np.int64)

    def passed(self, facts: Facts) -> str:
        stall = typical_ns(facts, facts.gaps.start, python_amount(facts))
        return f"Long stretches of Python starve the GPU for {percent(stall / facts.step_ns)} of the median step."
