"""TQ006: recording stacks slowed the host, and the GPU waits for the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from traceopt.analyzer.facts import Facts
from traceopt.rules.common import HOST_DISPATCH, percent, starved_ns
from traceopt.rules.finding import Finding, Fix
from traceopt.rules.registry import TRACE_QUALITY
from traceopt.rules.rule import Rule, threshold


@dataclass(frozen=True)
class ProfilerOverhead(Rule):
    """Measures, in a trace with Python stacks, how much of the median step the GPU waits for the host's ordinary work:
    operators, launches and Python.

    Why it matters: recording stacks costs time at every Python call, shapes and memory at every operator. The GPU does
    not slow down, so the profiler makes a step look more host-bound than it is.

    How to fix: find the lines with stacks, then measure the shares without them.

        with profile(with_stack=False, record_shapes=False, profile_memory=False) as prof:
            ...

    When it is wrong: a step that is host-bound without the profiler as well. Compare the median step with the time of a
    step measured without a profiler.

    Sources: PyTorch documentation of `torch.profiler.profile` on with_stack; Kineto issue 325, PyTorch issue 62390.
    """

    code: ClassVar[str] = "TQ006"
    name: ClassVar[str] = "profiler-overhead"
    title: ClassVar[str] = "Measure host-bound shares without stacks"
    family: ClassVar[str] = TRACE_QUALITY
    requires: ClassVar[tuple[str, ...]] = ("gpu", "launches")

    min_share: float = threshold(0.10, "share of the median step with the GPU starved by the host's ordinary work")

    def applies(self, facts: Facts) -> str | None:
        return None if facts.call_sites.recorded else "No Python stacks were recorded."

    def check(self, facts: Facts) -> Iterator[Finding]:
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

    def passed(self, facts: Facts) -> str:
        return f"The GPU waits for the host's ordinary work in {percent(_host_share(facts))} of the median step."


def _host_share(facts: Facts) -> float:
    return starved_ns(facts, *HOST_DISPATCH) / facts.step_ns
