"""TQ004: the recording holds the start-up of the process."""

from __future__ import annotations

from traceopt.rules import TRACE_QUALITY, Facts, Findings, Fix, Rule, ms, percent, threshold


class ColdStart(Rule):
    """Measures how long the GPU is idle while the driver builds its context, loads GPU code at the first call of a
    kernel, or allocates for the first time.

    Why it matters: this happens once in a run of hours, but fills a recording of seconds. Shares of such a window say
    nothing about the steps that follow.

    How to fix: warm up before recording.

        with profile(schedule=schedule(wait=2, warmup=3, active=6)) as prof:
            ...

    When it is wrong: in a job that starts often and runs briefly (a serverless function, a test), start-up is the cost.
    Then consider CUDA_MODULE_LOADING=LAZY, ahead-of-time compilation and fewer libraries.

    Sources: CUDA programming guide, "Lazy Loading"; PyTorch documentation, "torch.profiler.schedule".
    """

    code = "TQ004"
    name = "cold-start"
    title = "Warm up before recording"
    family = TRACE_QUALITY
    requires = ("gpu", "launches")

    min_share: float = threshold(0.10, "smallest GPU wait for context and code loading, as a share of the recording")

    def check(self, facts: Facts) -> Findings:
        share = _cold_share(facts)
        if share < self.min_share:
            return
        yield self.finding(
            why=(
                f"The GPU waits for {percent(share)} of the recording ({ms(share * facts.recorded_steps.window_ns)}) "
                "while the driver builds its context and loads code. This is start-up, not a steady-state step. Record "
                "again after a few warm-up steps."
            ),
            fix=Fix("Let the schedule skip the first steps.", "profile(schedule=schedule(wait=2, warmup=3, active=6))"),
            saving=None,
            evidence=[],
        )

    def passed(self, facts: Facts) -> str:
        return f"The GPU waits for context and code loading for {percent(_cold_share(facts))} of the recording."


def _cold_share(facts: Facts) -> float:
    """Of all recorded steps: the typical steps leave out a slow first one."""
    return facts.of_every_step.quality.cold_share
