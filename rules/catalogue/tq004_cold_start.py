"""TQ004: the recording holds work that happens once: the start-up of the process, or the capture of graphs."""

from __future__ import annotations

from collections.abc import Iterator

from traceopt.analyzer.vocabulary.causes.table import PROFILER
from traceopt.rules import CUDA_GRAPH, TRACE_QUALITY, Facts, Findings, Fix, Former, Rule, ms, percent, threshold


class ColdStart(Rule):
    """Measures how long the GPU is idle while the driver builds its context, loads GPU code at the first call of a
    kernel, or allocates for the first time, while the profiler itself starts, and how long the process captures and
    instantiates CUDA or HIP graphs. During a capture, launches are recorded and nothing runs.

    Why it matters: this happens once in a run of hours, but fills a recording of seconds. Shares of such a window say
    nothing about the steps that follow.

    How to fix: warm up before recording, with all shapes that the recording will see.

        for _ in range(3):              # torch.compile(mode="reduce-overhead") captures in its first calls
            model(example)
        with profile(schedule=schedule(wait=2, warmup=3, active=6)) as prof:
            ...

    When it is wrong: in a job that starts often and runs briefly (a serverless function, a test), start-up is the cost.
    Then consider CUDA_MODULE_LOADING=LAZY, ahead-of-time compilation and fewer libraries. Graphs that are captured
    again in every step (changing shapes, a graph tree that never settles) are a cost of the job. Then pad the shapes,
    or mark dynamic dimensions.

    Sources: CUDA programming guide, "Lazy Loading"; PyTorch documentation, "torch.profiler.schedule", "CUDA semantics:
    CUDA graphs" and "CUDAGraph Trees".
    """

    code = "TQ004"
    name = "cold-start"
    title = "Warm up before recording"
    family = TRACE_QUALITY
    requires = ("gpu", "launches")
    former = (Former("TQ008", "graph-capture", {"min_share": "min_capture_share"}),)

    min_share: float = threshold(0.10, "smallest GPU wait for context and code loading, as a share of the recording")
    min_capture_share: float = threshold(0.05, "smallest graph capture time, as a share of the window, to report")

    def check(self, facts: Facts) -> Findings:
        signs = list(self._signs(facts))
        if signs:
            yield self.finding(
                why=" ".join(signs),
                fix=Fix(
                    "Let the schedule skip the first steps, and capture every shape before the recording starts.",
                    "profile(schedule=schedule(wait=2, warmup=3, active=6))",
                ),
            )

    def _signs(self, facts: Facts) -> Iterator[str]:
        share, captured = _cold_share(facts), facts.quality.capture_share
        profiler_ns = facts.of_every_step.idle.total_ns(PROFILER)
        if share >= self.min_share:
            yield (
                f"The GPU waits for {percent(share)} of the recording ({ms(share * facts.recorded_steps.window_ns)}) "
                "while the driver builds its context and loads code. This is start-up, not a steady-state step. Record "
                "again after a few warm-up steps."
            )
        if profiler_ns >= self.min_share * facts.recorded_steps.window_ns:
            yield (
                f"The GPU waits for {ms(profiler_ns)} of the recording while the profiler sets itself up. No fix saves "
                "that time. Let the schedule warm the profiler up before it records."
            )
        if captured >= self.min_capture_share:
            yield (
                f"{CUDA_GRAPH}s are captured for {percent(captured)} of the window "
                f"({ms(facts.quality.captures.total)}). Nothing runs on the GPU meanwhile, and it happens only once. "
                "Run a few warm-up steps before recording."
            )

    def passed(self, facts: Facts) -> str:
        return (
            f"The GPU waits for context and code loading for {percent(_cold_share(facts))} of the recording; capturing "
            f"graphs takes {percent(facts.quality.capture_share)} of the window."
        )


def _cold_share(facts: Facts) -> float:
    """Of all recorded steps: the typical steps leave out a slow first one."""
    return facts.of_every_step.quality.cold_share
