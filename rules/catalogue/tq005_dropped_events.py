"""TQ005: the profiler lost events during the recording."""

from __future__ import annotations

from traceopt.rules import TRACE_QUALITY, Facts, Findings, Fix, Rule, percent, threshold


class DroppedEvents(Rule):
    """Compares launches with GPU work inside the window. Counts kernel launches without a kernel, and kernels whose
    launch is missing although earlier launches of the same stream are there. Launches inside a graph capture do not
    count, because nothing runs. TQ003 covers work launched before the file starts.

    Why it matters: if kernels are missing, the GPU looks idle although it worked. If launches are missing, kernels have
    no operator, shape or source line.

    How to fix: record fewer steps at a time, so that the profiler's buffers do not overflow, and stop the profiler only
    when the GPU is done.

        with profile(schedule=schedule(wait=1, warmup=2, active=3)) as prof:
            ...
            torch.cuda.synchronize()    # before the last prof.step()

    When it is wrong: somebody removed short kernels from the file. Another library's profiler that replays graphs may
    hide launches on purpose.

    Sources: PyTorch issues 131462, 166121 and 192021.
    """

    code = "TQ005"
    name = "dropped-events"
    title = "Record without losing events"
    family = TRACE_QUALITY
    requires = ("gpu", "launches")

    min_share: float = threshold(0.03, "smallest share of lost launches or lost GPU work to report")

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
                "busy time is understated and idle time overstated."
            )
        if lost and lost >= self.min_share * events:
            signs.append(
                f"{lost:,} of {events:,} GPU events ({percent(lost / events)}) have no launch, so their operators are "
                "unknown."
            )
        if signs:
            yield self.finding(
                why=f"The profiler dropped events. {' '.join(signs)} Record fewer steps at a time.",
                fix=Fix(
                    "Record fewer steps at a time, and stop the profiler only when the GPU is done.",
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
