"""PY001: Python's garbage collector stops the training thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from traceopt.analyzer.facts import Facts
from traceopt.rules.common import by_site, locations, ms, name_of, percent, saving, site_evidence
from traceopt.rules.finding import Confidence, Evidence, Finding, Fix
from traceopt.rules.rule import Rule, threshold


@dataclass(frozen=True)
class GcPause(Rule):
    """Measures collections that hold the launching thread while the GPU starves: recorded ones (a `gc.collect` frame, or
    the annotation that `traceopt run` writes). Where none was recorded, a hole in the middle of Python (no event for
    many milliseconds, at irregular steps, GPU starving) is reported as a conjecture, without a saving.

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
    hole_ms: float = threshold(20.0, "shortest unexplained hole that is worth a conjecture")

    def check(self, facts: Facts) -> Iterator[Finding]:
        total = facts.stalls.total_ns("gc")
        if total >= self.min_share * facts.steps.window_ns:
            yield self._recorded(facts, total)
        elif facts.has_gpu and facts.call_sites.recorded and len(facts.trace.python):
            yield from self._conjectured(facts)

    def _recorded(self, facts: Facts, total_ns: int) -> Finding:
        rows = facts.host.rows_of("gc")
        cost = facts.stalled_within(facts.slices.start[rows], facts.slices.end[rows])
        rows, cost = rows[cost > 0], cost[cost > 0]
        sites = by_site(facts, rows, cost)
        mean = total_ns / facts.steps.count
        steps = int(np.count_nonzero(facts.steps.per_step(facts.steps.step_of(facts.slices.start[rows]), cost)))
        return self.finding(
            why=(
                f"The garbage collector stops the training thread for {ms(mean)} a step on average: {len(rows)} pauses of "
                f"up to {ms(float(cost.max()) if len(cost) else 0)} in {steps} of {facts.steps.count} steps."
            ),
            saving=saving(
                facts,
                0.8 * mean,
                mean,
                mean,
                "The measured pauses with the device standing still, spread over the steps.",
            ),
            evidence=site_evidence(facts, sites, lambda site: name_of(facts, int(site.rows[0]))),
            locations=locations(sites),
            fix=_FIX,
        )

    def _conjectured(self, facts: Facts) -> Iterator[Finding]:
        """Long starvation in which the innermost thing on the thread is one Python frame that calls nothing."""
        column = facts.idle.of_gaps("python")
        long = np.flatnonzero(column >= self.hole_ms * 1e6)
        holes = [row for row in long.tolist() if self._empty(facts, row)]
        if not holes:
            return
        steps = len({int(facts.gaps.step[row]) for row in holes})
        if steps == facts.steps.count and facts.steps.count > 1:
            return  # every step: ordinary code that the profiler does not see
        cost = column[holes]
        low: Confidence = "low"
        yield self.finding(
            why=(
                f"In {steps} of {facts.steps.count} steps the training thread stands still for up to {ms(float(cost.max()))} "
                "inside Python with no event at all, and the GPU runs dry: perhaps the garbage collector."
            ),
            saving=None,
            confidence=low,
            evidence=[Evidence("unexplained holes in Python", round(float(cost.sum()) / facts.steps.count / 1e3, 3))],
            fix=_FIX,
        )

    def _empty(self, facts: Facts, gap: int) -> bool:
        """Whether most of the gap lies in one hole between two slices of its thread."""
        start, end = int(facts.gaps.start[gap]), int(facts.gaps.starved_end[gap])
        mine = facts.slices.thread == facts.gaps.thread[gap]
        edges = np.concatenate((facts.slices.start[mine], facts.slices.end[mine], [start, end]))
        inside = np.sort(edges[(edges >= start) & (edges <= end)])
        return bool(np.diff(inside).max() >= 0.8 * (end - start))

    def passed(self, facts: Facts) -> str:
        return (
            f"Recorded collections stall {percent(facts.stalls.total_ns('gc') / facts.steps.window_ns)} of the steps."
        )


_FIX = Fix(
    "Freeze long-lived objects, disable automatic collection, and collect every few hundred steps on all ranks at once.",
    "gc.collect(); gc.freeze(); gc.disable()\nif step % 500 == 0:\n    gc.collect(1)",
)
