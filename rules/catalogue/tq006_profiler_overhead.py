"""TQ006: recording slowed the host, and the step waits for the host."""

from __future__ import annotations

from typing import ClassVar

from traceopt.analyzer.facts import Facts
from traceopt.result.finding import Evidence, Fix
from traceopt.result.quantities import percent
from traceopt.rules.registry import TRACE_QUALITY
from traceopt.rules.rule import Findings, Rule, threshold
from traceopt.rules.savings.price import Priced
from traceopt.rules.savings.starvation import HOST_DISPATCH, starved_ns


class ProfilerOverhead(Rule):
    """Measures what recording did to the steps. `traceopt run` keeps the time of every step of the run, recorded or
    not: the median recorded step of the analyzed cycle as a multiple of the median unrecorded one, waiting for data
    aside. In other traces with Python stacks: how much of the median step the GPU waits for the host's ordinary work
    (operators, launches and Python).

    Why it matters: recording costs time at every operator and launch, shapes and memory at every operator as well,
    stacks at every Python call. The GPU does not slow down, so the profiler makes a step look more host-bound than it
    is.

    How to fix: find the lines with stacks, then measure the shares without them. `traceopt run` does both by itself, in
    two cycles.

        with profile(with_stack=False, record_shapes=False, profile_memory=False) as prof:
            ...

    When it is wrong: without the time of unrecorded steps, a step that is host-bound without the profiler as well. With
    it, a run whose other steps do less work (other shapes, evaluation) is compared with them.

    Sources: PyTorch documentation of `torch.profiler.profile` on with_stack; Kineto issue 325, PyTorch issue 62390.
    """

    code: ClassVar[str] = "TQ006"
    name: ClassVar[str] = "profiler-overhead"
    title: ClassVar[str] = "Measure host-bound shares without stacks"
    family: ClassVar[str] = TRACE_QUALITY

    min_stretch: float = threshold(1.1, "recorded steps as a multiple of the others, from which it is told")
    min_share: float = threshold(0.10, "share of the median step with the GPU starved by the host's ordinary work")

    def missing(self, facts: Facts) -> str | None:
        if facts.captured.stretch is not None:
            return None
        return next((lack for needed in ("gpu", "launches") if (lack := facts.lacks(needed))), None)

    def applies(self, facts: Facts) -> str | None:
        return (
            None
            if facts.captured.stretch is not None or facts.call_sites.recorded
            else "No Python stacks were recorded."
        )

    def check(self, facts: Facts) -> Findings:
        stretch = facts.captured.stretch
        if stretch is not None:
            if stretch >= self.min_stretch:
                yield self._measured(facts, stretch)
            return
        share = _host_share(facts)
        if share < self.min_share:
            return
        yield self.finding(
            why=(
                "Python stacks were recorded, which slows the host, and the GPU waits for the host in "
                f"{percent(share)} of the step: that share is smaller without the profiler. Record again with "
                "with_stack=False to measure it."
            ),
            fix=Fix("Use stacks to find the line, and a run without them to measure.", "profile(with_stack=False)"),
            saving=None,
            evidence=[],
        )

    def _measured(self, facts: Facts, stretch: float) -> Priced:
        ledger = facts.captured.ledger
        cycles = ledger.stretch if ledger is not None else {}
        inflated = (
            f"the {percent(_host_share(facts))} of the step in which the GPU waits for the host is smaller without it"
            if facts.has_gpu
            else "work of many small operators, and Python, is smaller without it"
        )
        return self.finding(
            why=(
                f"Recorded steps took {stretch:.2f} times as long as the others of the run, waiting for data aside. "
                "The "
                f"profiler slows the host alone: {inflated}."
            ),
            fix=Fix("Trust the order of the findings more than their milliseconds."),
            saving=None,
            evidence=[Evidence(f"{cycle} cycle", detail=f"{ratio:.2f} times") for cycle, ratio in cycles.items()],
        )

    def passed(self, facts: Facts) -> str:
        stretch = facts.captured.stretch
        if stretch is not None:
            return f"Recorded steps took {stretch:.2f} times as long as the others of the run, waiting for data aside."
        return f"The GPU waits for the host's ordinary work in {percent(_host_share(facts))} of the median step."


def _host_share(facts: Facts) -> float:
    return starved_ns(facts, *HOST_DISPATCH) / facts.step_ns
