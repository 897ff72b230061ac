"""TQ002: the trace does not show several steps, so what happens once looks like a cost of every step."""

from __future__ import annotations

from typing import ClassVar

from traceopt.analyzer.facts import Facts
from traceopt.result.finding import Fix
from traceopt.result.quantities import percent
from traceopt.rules.registry import TRACE_QUALITY
from traceopt.rules.rule import Findings, Rule, threshold

SCHEDULE = """with profile(schedule=schedule(wait=1, warmup=2, active=6)) as prof:
    for batch in loader:
        train_step(batch)
        prof.step()"""


class NoSteps(Rule):
    """Looks for the `ProfilerStep#N` annotations that `prof.step()` writes.

    Why it matters: a saving is time given back in every step, judged by the median of several. Without steps, traceopt
    falls back to an annotation that repeats over the trace, else to the whole file as one window; then start-up,
    evaluation and the end of the run count as if they were part of a step. With one step alone, a stall that happens
    once cannot be told from one that happens always.

    The note is left out where the GPU is busy for almost the whole window: its work is then the cost, wherever the
    borders of the steps lie.

    How to fix:

        with torch.profiler.profile(schedule=torch.profiler.schedule(wait=1, warmup=2, active=6)) as prof:
            for batch in loader:
                train_step(batch)
                prof.step()

    When it is wrong: one long step may hold many equal iterations (a generation loop), and then says enough.

    Sources: PyTorch documentation, "torch.profiler.schedule".
    """

    code: ClassVar[str] = "TQ002"
    name: ClassVar[str] = "no-steps"
    title: ClassVar[str] = "Mark several steps with prof.step()"
    family: ClassVar[str] = TRACE_QUALITY

    min_idle_share: float = threshold(0.10, "GPU idle share of the window above which missing steps matter")

    def check(self, facts: Facts) -> Findings:
        steps = facts.steps
        if steps.source == "profiler_step" and steps.count > 1:
            return
        if facts.has_gpu and _idle_share(facts) < self.min_idle_share:
            return
        yield self.finding(
            why=_what_is_known(facts),
            fix=Fix("Call prof.step() at the end of each iteration and record several.", SCHEDULE),
            saving=None,
            evidence=[],
        )

    def passed(self, facts: Facts) -> str:
        if facts.steps.source == "profiler_step" and facts.steps.count > 1:
            return f"{facts.steps.count} profiler steps were recorded."
        return f"The GPU is idle for only {percent(_idle_share(facts))} of the window, so its borders change little."


def _idle_share(facts: Facts) -> float:
    return facts.gpu.idle.total / facts.steps.window_ns


def _what_is_known(facts: Facts) -> str:
    steps = facts.steps
    advice = "Call prof.step() in the loop and record five steps or more."
    if steps.source == "profiler_step":
        return f"Only one step was recorded, so a one-off cannot be told from a cost of every step. {advice}"
    if steps.source == "annotation":
        name = steps.names[0].rpartition(" ")[0]
        return (
            f"No profiler step was recorded; the {steps.count} ranges named {name!r} stand for the steps, which is a "
            f"guess. {advice}"
        )
    return (
        "No profiler step was recorded: the whole file is judged as one step, with whatever start-up it holds. "
        f"{advice}"
    )
