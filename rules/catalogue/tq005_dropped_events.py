"""TQ005: the profiler lost events inside the recording."""

from __future__ import annotations

from typing import ClassVar

from traceopt.analyzer.facts import Facts
from traceopt.result.finding import Fix
from traceopt.result.quantities import percent
from traceopt.rules.registry import TRACE_QUALITY
from traceopt.rules.rule import Findings, Rule, threshold


class DroppedEvents(Rule):
    """Compares launches with GPU work inside the window: kernel launches that no kernel answers, and kernels whose
    launch is missing although earlier launches of the same stream are there. Launches inside a graph capture are
    recorded, not run, and do not count; work launched before the file begins is TQ003's.

    Why it matters: where kernels are missing, the GPU looks idle though it worked; where launches are missing, kernels
    have no operator, no shape and no line of code.

    How to fix: record fewer steps at a time, so that the profiler's buffers do not overflow, and stop the profiler only
    when the GPU is done.

        with profile(schedule=schedule(wait=1, warmup=2, active=3)) as prof:
            ...
            torch.cuda.synchronize()    # before the last prof.step()

    When it is wrong: a file from which somebody removed short kernels. A profiler of another library that replays
    graphs may hide launches on purpose.

    Sources: PyTorch issues 131462, 166121 and 192021.
    """

    code: ClassVar[str] = "TQ005"
    name: ClassVar[str] = "dropped-events"
    title: ClassVar[str] = "Record without losing events"
    family: ClassVar[str] = TRACE_QUALITY
    requires: ClassVar[tuple[str, ...]] = ("gpu", "launches")

    min_share: float = threshold(0.03, "share of launches without work, or of GPU events without a launch")

    def applies(self, facts: Facts) -> str | None:
        return "The file is sampled." if facts.quality.sampled_share is not None else None

    def check(self, facts: Facts) -> Findings:
        quality = facts.quality
        unanswered, launches = quality.launches_without_work, quality.launch_count
        lost, events = quality.lost_launches, len(facts.gpu.work)
        signs = []
        if unanswered and unanswered >= self.min_share * launches:
            signs.append(
                f"{unanswered:,} of {launches:,} kernel launches ({percent(unanswered / launches)}) have no kernel, so "
                "idle time is overstated."
            )
        if lost and lost >= self.min_share * events:
            signs.append(
                f"{lost:,} of {events:,} GPU events ({percent(lost / events)}) have no launch, so their operators are "
                "not known."
            )
        if signs:
            yield self.finding(
                why=f"The profiler dropped events. {' '.join(signs)} Record fewer steps at a time.",
                fix=Fix(
                    "Record fewer steps at a time and stop the profiler only when the GPU is done.",
                    "profile(schedule=schedule(wait=1, warmup=2, active=3))",
                ),
                saving=None,
                evidence=[],
            )

    def passed(self, facts: Facts) -> str:
        quality = facts.quality
        return (
            f"{quality.launches_without_work:,} of {quality.launch_count:,} kernel launches have no kernel; "
            f"{quality.lost_launches:,} GPU events have no launch."
        )
