"""MM005: every step leaves more memory allocated."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.memory.blocks import AFTER
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.result.finding import Evidence, Fix, Location
from traceopt.result.quantities import size
from traceopt.result.rounding import rate
from traceopt.rules.evidence import name_of, places, to_location
from traceopt.rules.rule import Findings, Rule, threshold


class MemoryGrowth(Rule):
    """Compares the lowest allocated memory of each step. If it rises from every step to the next, something is being
    retained. The finding names the operators whose results are still alive at the end.

    Why it costs: the run ends out of memory, hours later. The usual cause is a tensor stored with its autograd graph: a
    list of losses, a running sum that was not detached.

    How to fix: store numbers, not graphs.

        total_loss += loss.detach()          # not: total_loss += loss
        history.append(loss.item())          # at the logging interval, not: history.append(loss)
        del outputs                          # if the next step would hold two

    When it is wrong: generation grows its key-value cache by design, and a cache that fills once is not a leak. The
    rule needs growth in every recorded step, but all steps of a short recording may be filling a cache.

    Sources: PyTorch FAQ, "My model reports cuda runtime error(2): out of memory".
    """

    code: ClassVar[str] = "MM005"
    name: ClassVar[str] = "memory-growth"
    title: ClassVar[str] = "Release tensors at the end of each step"
    family: ClassVar[str] = "memory"
    effort: ClassVar[str] = "One line"
    requires: ClassVar[tuple[str, ...]] = ("gpu", "memory")

    min_steps: int = threshold(4, "fewest recorded steps needed to judge growth")
    min_bytes: int = threshold(1 << 20, "smallest growth per step, in bytes")

    def applies(self, facts: Facts) -> str | None:
        floor = _floor(facts)
        if len(floor) < self.min_steps:
            return f"Too few steps have recorded memory ({len(floor)}) to judge growth."
        return None

    def check(self, facts: Facts) -> Findings:
        growth = np.diff(_floor(facts))
        if growth.min() < self.min_bytes:
            return
        each = median(growth)
        evidence, locations = _retained(facts)
        left = (facts.device.memory_bytes or 0) - (facts.memory.peak_allocated or 0 if facts.memory else 0)
        full = f" At this rate the device runs out of memory after {left / each:,.0f} more steps." if left > 0 else ""
        yield self.finding(
            why=f"Each of {len(growth)} steps leaves {size(each)} more allocated than the one before.{full}",
            saving=None,
            evidence=[Evidence("Growth per step", detail=size(each)), *evidence],
            locations=locations,
            fix=Fix(
                "Detach tensors that outlive the step, or store numbers instead of tensors.",
                "total_loss += loss.detach()",
            ),
        )

    def passed(self, facts: Facts) -> str:
        floor = _floor(facts)
        return (
            f"The lowest memory of a step changes by {size(abs(float(floor[-1] - floor[0])))} over {len(floor)} steps."
        )


def _floor(facts: Facts) -> I8:
    """The lowest allocated bytes in each step that has samples."""
    memory = facts.memory
    if memory is None or not len(memory.time):
        return np.empty(0, np.int64)
    step = facts.steps.step_of(memory.time)
    inside = (step >= 0) & (step < facts.steps.count)
    steps, first = np.unique(step[inside], return_index=True)
    return np.minimum.reduceat(memory.allocated[inside], first) if len(steps) else np.empty(0, np.int64)


def _retained(facts: Facts) -> tuple[list[Evidence], list[Location]]:
    """The operators whose allocations are still alive at the end (but not the last step's), most bytes first."""
    blocks = facts.blocks
    if blocks is None:
        return [], []
    edges = facts.steps.edges
    alive = np.flatnonzero((blocks.end == AFTER) & (blocks.start >= edges[0]) & (blocks.start < edges[-2]))
    at = np.full(len(alive), -1, np.int64)
    for thread in np.unique(blocks.thread[alive]):
        mine = blocks.thread[alive] == thread
        at[mine] = facts.slices.at(int(thread), blocks.start[alive[mine]])
    at = facts.slices.ancestor(at, facts.slices.kind == OP).astype(np.int64)
    alive, at = alive[at >= 0], at[at >= 0]
    names = facts.slices.name[at]
    steps = max(1, facts.steps.count - 1)
    rows = []
    for name in np.unique(names):
        mine = names == name
        place = _place(facts, at[mine])
        total = int(blocks.bytes[alive[mine]].sum())
        rows.append((total, Evidence(name_of(facts, int(at[mine][0])), None, rate(mine.sum() / steps), None, place)))
    rows.sort(key=lambda row: -row[0])
    evidence = [
        Evidence(row.what, None, row.calls_per_step, f"retains {size(total / steps)} per step", row.location)
        for total, row in rows[:5]
    ]
    return evidence, places(evidence)


def _place(facts: Facts, rows: I8) -> Location | None:
    sites = facts.call_sites.of(rows)
    known = sites[sites >= 0]
    if not len(known):
        return None
    return to_location(facts.call_sites.sites[int(np.bincount(known).argmax())])
