"""TQ010: the GPU looks idle although work was queued."""

from __future__ import annotations

from traceopt.rules import TRACE_QUALITY, Facts, Findings, Fix, Rule, percent, threshold


class QueuedIdle(Rule):
    """Measures idle gaps of a millisecond or more whose next kernel had already been launched when the gap began.

    Why it matters: the host was on time, so a faster host or loader saves nothing. Something that the trace does not
    show delayed the GPU: kernels of a CUDA graph that were not recorded, work of another process or stream, a wait for
    a peer GPU, throttling. How much of the gap is real idle time is unknown, so there is no fix to offer.

    How to fix: record what is hidden.

        nvidia-smi                                  # does another process use this GPU?
        traceopt analyze traces/                    # all ranks: do they wait for each other?
        nsys profile --cuda-graph-trace=node ...    # kernels inside graphs, if CUPTI did not report them

    When it is wrong: a stream waits for an event of another stream by design. TQ003 covers a gap at the start
    of the file. Sampled files are not judged at all.

    Sources: HTA issue 290, Kineto issue 1062, TraceLens issues 591 and 827.
    """

    code = "TQ010"
    name = "queued-idle"
    title = "Find out what delayed queued GPU work"
    family = TRACE_QUALITY
    requires = ("gpu", "launches")

    min_share: float = threshold(0.10, "smallest idle time in long gaps before queued work, as a share of the window")

    def applies(self, facts: Facts) -> str | None:
        return "The file is sampled, so its gaps are not real." if facts.quality.sampled_share is not None else None

    def check(self, facts: Facts) -> Findings:
        share = facts.quality.long_queued_share
        if share < self.min_share:
            return
        command = facts.device.vendor.graph_trace_command
        yield self.finding(
            why=(
                f"The GPU looks idle for {percent(share)} of the window although its next work was already launched. "
                "The trace does not show what delayed it (another stream, process or rank, or unrecorded graph "
                "kernels). Do not read that time as a slow host."
            ),
            fix=Fix(
                "Record all ranks, check whether another process uses the GPU, and trace the kernels inside graphs.",
                None if command is None else f"{command} python script.py",
            ),
        )

    def passed(self, facts: Facts) -> str:
        share = percent(facts.quality.long_queued_share)
        return f"The GPU is idle for {share} of the window in long gaps before queued work."
