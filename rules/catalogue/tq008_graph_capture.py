"""TQ008: a CUDA or HIP graph was captured during the recording."""

from __future__ import annotations

from traceopt.rules import CUDA_GRAPH, TRACE_QUALITY, Facts, Findings, Fix, Rule, ms, percent, threshold


class GraphCapture(Rule):
    """Measures how long the process captures and instantiates CUDA or HIP graphs inside the window.

    Why it matters: during a capture, launches are recorded and nothing runs, so the GPU is idle by design. That happens
    once per graph and is not part of a steady-state step.

    How to fix: capture all shapes before the recording starts.

        for _ in range(3):              # torch.compile(mode="reduce-overhead") captures in its first calls
            model(example)
        with profile(schedule=schedule(wait=1, warmup=2, active=6)) as prof:
            ...

    When it is wrong: graphs that are captured again in every step (changing shapes, a graph tree that never settles)
    are a cost of the job. Then pad the shapes, or mark dynamic dimensions.

    Sources: PyTorch documentation, "CUDA semantics: CUDA graphs" and "CUDAGraph Trees".
    """

    code = "TQ008"
    name = "graph-capture"
    title = "Capture graphs before recording"
    family = TRACE_QUALITY
    requires = ("launches",)

    min_share: float = threshold(0.05, "smallest graph capture time, as a share of the window, to report")

    def check(self, facts: Facts) -> Findings:
        share = facts.quality.capture_share
        if share < self.min_share:
            return
        yield self.finding(
            why=(
                f"{CUDA_GRAPH}s are captured for {percent(share)} of the window "
                f"({ms(facts.quality.captures.total)}). Nothing runs on the GPU meanwhile, and it happens only once. "
                "Run a few warm-up steps before recording."
            ),
            fix=Fix(
                "Capture every shape before the recording starts.",
                "profile(schedule=schedule(wait=2, warmup=3, active=6))",
            ),
            saving=None,
            evidence=[],
        )

    def passed(self, facts: Facts) -> str:
        return f"Capturing graphs takes {percent(facts.quality.capture_share)} of the window."
