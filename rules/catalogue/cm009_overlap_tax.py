"""CM009: kernels run slower while they overlap collectives."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.communication.overlap_slowdown import OverlappedKernel
from traceopt.rules import (
    NCCL,
    Changes,
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Rule,
    SetVariable,
    each_step,
    hide,
    ms,
    named,
    percent,
    place_of_work,
    priced,
    short_name,
    the_step,
    threshold,
)


class OverlapTax(Rule):
    """Compares runs of the same kernel (name, grid and operator sizes) that overlap a collective with runs that do not,
    and adds up the extra time.

    Why it costs: a running collective occupies multiprocessors (SMs) and memory bandwidth. Overlap hides communication,
    but slows the kernels that run at the same time.

    How to fix: give the collective fewer SMs, and let compute go first.

        NCCL_MAX_NCHANNELS=8 torchrun ...          # fewer blocks per collective: try, and measure the step
        NCCL_NTHREADS=256 torchrun ...

        options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=False)

    Copies by the link's own engines take no SMs (NVLink SHARP, symmetric memory, `NCCL_CTA_POLICY=2` from NCCL 2.28).

    When it is wrong: fewer channels make the collective itself slower. If its end is exposed, nothing is gained. This
    is why the low end of the saving is zero.

    Sources: NCCL documentation, environment variables; Rashidi et al., "Enabling Compute-Communication Overlap in
    Distributed Deep Learning Training Platforms" (2021).
    """

    code = "CM009"
    name = "overlap-tax"
    title = "Leave more of the GPU to overlapped kernels"
    family = "communication"
    effort = Effort.ONE_LINE_TESTED
    confidence = "low"
    requires = ("gpu",)

    min_share: float = threshold(0.03, "smallest extra time, as a share of the step, to report")
    min_runs: int = threshold(3, "fewest runs of a kernel with, and without, a collective needed to compare them")
    min_slowdown: float = threshold(1.1, "smallest slowdown under a collective that counts")
    removable: float = threshold(0.3, "share of the extra time that the fix removes, expected")

    def applies(self, facts: Facts) -> str | None:
        return None if facts.collectives else "No collectives in this trace."

    def check(self, facts: Facts) -> Findings:
        slowed, count = self._slowed(facts), facts.steps.count
        excess = sum(slowdown.excess_ns for slowdown in slowed) / count
        if excess < self.min_share * facts.step_ns:
            return
        overlap = sum(slowdown.overlap_ns for slowdown in slowed) / count
        yield self.finding(
            why=(
                f"Kernels that overlap a collective take {overlap / max(1.0, overlap - excess):.2f} times as long as "
                f"alone. This adds {ms(excess)} to {each_step(facts)}."
            ),
            saving=priced(
                facts,
                (0.0, self.removable * excess, excess),
                _quicker(facts, slowed, self.removable),
                "The extra time over runs of the same kernels without a collective; fewer channels save part of it.",
                high=_quicker(facts, slowed, 1.0),
            ),
            evidence=[_evidence(facts, slowdown) for slowdown in slowed[:5]],
            locations=[],
            fix=Fix(
                f"Limit {NCCL}'s channels, and measure the step again.", edits=[SetVariable("NCCL_MAX_NCHANNELS", "8")]
            ),
            shares_cause_with=["CM001"],
        )

    def _slowed(self, facts: Facts) -> list[OverlappedKernel]:
        """Kernels that a collective slows, largest extra time first."""
        return [
            kernel
            for kernel in facts.overlapped_kernels
            if min(len(kernel.rows), kernel.runs_alone) >= self.min_runs
            and kernel.slowdown >= self.min_slowdown
            and kernel.excess_ns > 0
        ]

    def passed(self, facts: Facts) -> str:
        excess = sum(slowdown.excess_ns for slowdown in self._slowed(facts)) / facts.steps.window_ns
        return f"Overlap with collectives slows kernels by {percent(max(0.0, excess))} of {the_step(facts)}."


def _quicker(facts: Facts, slowed: list[OverlappedKernel], share: float) -> Changes:
    """Shortens the slowed runs by a share of their extra time."""
    rows = np.concatenate([slowdown.rows for slowdown in slowed])
    alone = np.concatenate([np.full(len(slowdown.rows), slowdown.alone_ns) for slowdown in slowed])
    return hide(facts, rows, share * np.maximum(facts.gpu.work.duration[rows] - alone, 0))


def _evidence(facts: Facts, one: OverlappedKernel) -> Evidence:
    count = facts.steps.count
    return Evidence(
        what=named(short_name(facts.trace.names[facts.gpu.work.name[one.rows[0]]])),
        us_per_step=round(one.excess_ns / count / 1e3, 3),
        calls_per_step=round(len(one.rows) / count, 3),
        detail=f"{ms(one.overlapped_ns)} with a collective, {ms(one.alone_ns)} alone",
        location=place_of_work(facts, int(one.rows[0])),
    )
