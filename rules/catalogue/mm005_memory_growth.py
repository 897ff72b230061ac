"""MM005: every step leaves more memory allocated."""

from __future__ import annotations

import numpy as np

from traceopt.rules import (
    I8,
    Evidence,
    Facts,
    Findings,
    Fix,
    Rule,
    median,
    places,
    size,
    threshold,
)
from traceopt.rules.fixes.advice.memory import retained

MOST_OPERATORS = 5


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

    code = "MM005"
    name = "memory-growth"
    title = "Release tensors at the end of each step"
    family = "memory"
    effort = "One line"
    requires = ("gpu", "memory")

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
        evidence = [one.evidence for one in retained(facts)[:MOST_OPERATORS]]
        left = (facts.device.memory_bytes or 0) - (facts.memory.peak_allocated or 0 if facts.memory else 0)
        full = f" At this rate the device runs out of memory after {left / each:,.0f} more steps." if left > 0 else ""
        yield self.finding(
            why=f"Each of {len(growth)} steps leaves {size(each)} more allocated than the one before.{full}",
            saving=None,
            evidence=[Evidence("Growth per step", detail=size(each)), *evidence],
            locations=places(evidence),
            fix=Fix(
                "Detach tensors that outlive the step, or store numbers instead of tensors.",
                "total_loss += loss.detach()",
            )
            if facts.trains
            else Fix(
                "Move results that you keep to the CPU, and run under inference_mode, so that they hold no graph.",
                "with torch.inference_mode():\n    results.append(model(batch).cpu())",
            ),
        )

    def passed(self, facts: Facts) -> str:
        floor = _floor(facts)
        return (
            f"The lowest memory of a step changes by {size(abs(float(floor[-1] - floor[0])))} over {len(floor)} steps."
        )


def _floor(facts: Facts) -> I8:
    """The lowest allocated bytes in each step that has samples."""
    return facts.memory.lowest_by_step(facts.recorded_steps) if facts.memory is not None else np.empty(0, np.int64)
