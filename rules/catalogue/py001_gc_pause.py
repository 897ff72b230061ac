"""PY001: Python's garbage collector stops the training thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from traceopt.analyzer.activities import HOLE
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.intervals import union
from traceopt.analyzer.replay.changes import RemoveHost
from traceopt.rules.common import by_site, locations, ms, name_of, percent, site_evidence
from traceopt.rules.finding import Confidence, Finding, Fix
from traceopt.rules.pricing import area_of, priced
from traceopt.rules.rule import Rule, threshold


@dataclass(frozen=True)
class GcPause(Rule):
    """Measures collections that hold the launching thread while the GPU starves: recorded ones (a `gc.collect` frame,
    or the annotation that `traceopt run` writes). Where stacks were recorded, a hole inside one Python frame (no event
    for a millisecond and more, the GPU starving) is reported as a conjecture: every call would show.

    Why it costs: a full collection walks every object of the process. With a large model and data set in memory that
    takes tens to hundreds of milliseconds, and in distributed training every rank waits for the one that collects.

    How to fix: freeze what lives as long as the run, and collect at chosen steps on all ranks.

        gc.collect(); gc.freeze(); gc.disable()
        for step, batch in enumerate(loader):
            ...
            if step % 500 == 0:
                gc.collect(1)

    When it is wrong: a conjectured pause may be any native code that holds the interpreter: a lock, a page fault, a
    library call that the profiler does not see.

    Sources: Python documentation of gc.freeze; PyTorch's own trainers collect by hand for the same reason.
    """

    code: ClassVar[str] = "PY001"
    name: ClassVar[str] = "gc-pause"
    title: ClassVar[str] = "Freeze the garbage collector and collect at chosen steps"
    family: ClassVar[str] = "Python runtime"
    effort: ClassVar[str] = "Three lines"
    risk: ClassVar[str] = "Cycles live longer"

    min_share: float = threshold(0.01, "smallest share of the measured steps to report")

    def check(self, facts: Facts) -> Iterator[Finding]:
        least = self.min_share * facts.steps.window_ns
        recorded = facts.stalls.total_ns("gc")
        if recorded >= least:
            yield self._recorded(facts, recorded)
        holes = facts.idle.total_ns(HOLE) if facts.has_gpu else 0
        if holes >= least:
            yield self._conjectured(facts, holes)

    def _recorded(self, facts: Facts, total_ns: int) -> Finding:
        rows = facts.host.rows_of("gc")
        cost = facts.stalled_within(facts.slices.start[rows], facts.slices.end[rows])
        rows, cost = rows[cost > 0], cost[cost > 0]
        sites = by_site(facts, rows, cost)
        mean = total_ns / facts.steps.count
        steps = int(np.count_nonzero(facts.steps.per_step(facts.steps.step_of(facts.slices.start[rows]), cost)))
        return self.finding(
            why=(
                f"The garbage collector stops the training thread for {ms(mean)} a step on average: {len(rows)} pauses "
                f"of up to {ms(float(cost.max()) if len(cost) else 0)} in {steps} of {facts.steps.count} steps."
            ),
            saving=priced(
                facts,
                (0.8 * mean, mean, mean),
                [RemoveHost(area_of(facts, rows))],
                "The mean step without the pauses.",
                typical=False,
            ),
            evidence=site_evidence(facts, sites, lambda site: name_of(facts, int(site.rows[0]))),
            locations=locations(sites),
            fix=_FIX,
        )

    def _conjectured(self, facts: Facts, total_ns: int) -> Finding:
        holes = facts.holes
        cost = np.minimum(holes.end - holes.start, facts.idle.of_gaps(HOLE)[holes.gap])
        keep = cost > 0
        sites = by_site(facts, holes.slice[keep], cost[keep])
        steps = int(np.count_nonzero(facts.steps.per_step(facts.gaps.step[holes.gap[keep]], cost[keep])))
        mean = total_ns / facts.steps.count
        low: Confidence = "low"
        return self.finding(
            why=(
                f"In {steps} of {facts.steps.count} steps the training thread stands still for up to "
                f"{ms(float(cost.max()))} inside one Python frame, with no event at all, and the GPU runs dry: "
                "probably the garbage collector, else native code that holds the interpreter."
            ),
            saving=priced(
                facts,
                (0.0, mean, mean),
                [RemoveHost(union(holes.start, holes.end))],
                "The mean step without the holes, if it is the collector that makes them.",
                typical=False,
            ),
            confidence=low,
            evidence=site_evidence(facts, sites, lambda site: name_of(facts, int(site.rows[0]))),
            locations=locations(sites),
            fix=_FIX,
        )

    def passed(self, facts: Facts) -> str:
        return (
            f"Recorded collections stall {percent(facts.stalls.total_ns('gc') / facts.steps.window_ns)} of the steps."
        )


_FIX = Fix(
    "Freeze long-lived objects, disable automatic collection, and collect every few hundred steps on all ranks.",
    "gc.collect(); gc.freeze(); gc.disable()\nif step % 500 == 0:\n    gc.collect(1)",
)
