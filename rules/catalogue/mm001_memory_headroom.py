"""MM001: a larger batch would speed up the step, and there is memory for it."""

from __future__ import annotations

from typing import ClassVar

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.memory.composition import Composition
from traceopt.result.finding import Evidence, Fix
from traceopt.result.quantities import ms, percent
from traceopt.rules.advice.memory import parts, peak_of_capacity, peak_share, size
from traceopt.rules.rule import Findings, Rule, threshold
from traceopt.rules.savings.starvation import dispatch_ns

MANY = 100.0  # times the batch: beyond it only the order matters


class MemoryHeadroom(Rule):
    """Measures the peak of the device's memory in a step in which the GPU starves for launches: a larger batch makes
    every kernel longer at the same number of launches. What stays in memory from step to step is told apart from what
    grows with the batch, so the batch that fits can be said.

    Why it costs: the host's work for a step is the same for one sample and for a hundred; with a small batch the GPU
    waits for it.

    How to fix: raise the batch size, and the learning rate with it where the recipe asks for that.

        loader = DataLoader(dataset, batch_size=4 * 32, ...)
        optimizer = AdamW(model.parameters(), lr=lr * 2)   # square root scaling for Adam, linear for SGD

    When it is wrong: a larger batch may train worse, and a serving engine takes what requests there are. The finding
    carries no saving: a step gets longer, though fewer are needed. LB001 prices the starvation itself.

    Sources: PyTorch performance tuning guide; Malladi et al., "On the SDEs and Scaling Rules for Adaptive Gradient
    Algorithms" (2022).
    """

    code: ClassVar[str] = "MM001"
    name: ClassVar[str] = "memory-headroom"
    title: ClassVar[str] = "Raise the batch size into the free memory"
    family: ClassVar[str] = "memory"
    effort: ClassVar[str] = "One number, then tuning"
    risk: ClassVar[str] = "May change convergence"
    requires: ClassVar[tuple[str, ...]] = ("gpu", "whole", "launches", "memory")

    max_share: float = threshold(0.60, "share of the device's memory at the peak, above which nothing is said")
    min_starved: float = threshold(0.10, "starvation for launches, as a share of the median step")
    min_factor: float = threshold(1.5, "times the batch that must fit")
    usable: float = threshold(0.90, "share of the device's memory to fill")

    def applies(self, facts: Facts) -> str | None:
        return None if facts.device.memory_bytes else "The capacity of the device is not in the trace."

    def check(self, facts: Facts) -> Findings:
        starved, held = dispatch_ns(facts), facts.composition
        if held is None or starved < self.min_starved * facts.step_ns or peak_share(facts) > self.max_share:
            return
        factor = self._factor(facts, held)
        if factor < self.min_factor:
            return
        times = f"{factor:.2g} times" if factor < MANY else f"{MANY:.0f} times and more"
        yield self.finding(
            why=(
                f"The peak is {peak_of_capacity(facts)}, and the GPU waits {ms(starved)} of each {ms(facts.step_ns)} "
                f"step for launches, which a larger batch would not add to. Of the peak, {size(held.of_the_batch)} "
                f"grow with the batch: {times} the batch fits."
            ),
            saving=None,
            evidence=[Evidence("Peak allocated", detail=size(held.total)), *parts(held)],
            fix=Fix(
                f"Raise the batch size; {times} of it fill {percent(self.usable)} of the memory.",
                "DataLoader(..., batch_size=2 * batch_size)  # and again, while the step's time per sample falls",
            ),
            shares_cause_with=["LB001"],
        )

    def _factor(self, facts: Facts, held: Composition) -> float:
        """How many times the batch fits, given what stays and what the allocator holds beyond what it hands out."""
        free = self.usable * (facts.device.memory_bytes or 0) - held.resident
        spread = peak_share(facts) * (facts.device.memory_bytes or 0) / max(1, held.total)
        return free / max(1.0, held.of_the_batch * max(1.0, spread))

    def passed(self, facts: Facts) -> str:
        starved = dispatch_ns(facts) / facts.step_ns
        return f"The peak is {peak_of_capacity(facts)}; the GPU waits for launches in {percent(starved)} of the step."
