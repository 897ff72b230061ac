"""MM001: a larger batch would speed up the step, and there is memory for it."""

from __future__ import annotations

from traceopt.analyzer.memory.composition import Composition
from traceopt.rules import (
    CUDA_GRAPH,
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Risk,
    Rule,
    SetArguments,
    dispatch_ns,
    each_step,
    ms,
    of_memory,
    percent,
    size,
    the_step,
    threshold,
)
from traceopt.rules.fixes.advice.batch_size import larger_batch_risk
from traceopt.rules.fixes.advice.constructed import loader_places
from traceopt.rules.fixes.advice.memory import parts, peak_of_capacity, peak_share

MANY = 100.0  # times the batch: if so many fit, memory is not what limits it


class MemoryHeadroom(Rule):
    """Measures the peak device memory in a step in which the GPU waits for launches. A larger batch makes every kernel
    longer at the same number of launches. The rule separates memory that stays from step to step from memory that grows
    with the batch, so it can estimate the batch that fits.

    Why it costs: the host's work per step is the same for one sample and for a hundred. With a small batch, the GPU
    waits for it.

    How to fix: raise the batch size, and the learning rate with it if the recipe asks for that.

        loader = DataLoader(dataset, batch_size=4 * 32, ...)
        optimizer = AdamW(model.parameters(), lr=lr * 2)   # square root scaling for Adam, linear for SGD

    When it is wrong: a larger batch may train worse, and one request of a server cannot wait for others (the rule does
    not apply to vLLM, SGLang, TensorRT-LLM and TGI). The finding has no saving: a step gets longer, but you need fewer
    of them. LB002 prices the idle time itself.

    Sources: PyTorch performance tuning guide; Malladi et al., "On the SDEs and Scaling Rules for Adaptive Gradient
    Algorithms" (2022).
    """

    code = "MM001"
    name = "memory-headroom"
    title = "Raise the batch size to use free memory"
    family = "memory"
    effort = Effort.ONE_LINE_TESTED
    risk = Risk.CONVERGENCE
    confidence = "medium"
    requires = ("gpu", "whole", "launches", "memory")

    max_share: float = threshold(0.60, "largest peak, as a share of device memory, to report")
    min_starved: float = threshold(0.10, "smallest GPU wait for launches, as a share of the step")
    min_factor: float = threshold(1.5, "smallest multiple of the batch that must fit")
    usable: float = threshold(0.90, "share of device memory to fill")

    def applies(self, facts: Facts) -> str | None:
        if facts.serving_engine is not None:
            return f"{facts.serving_engine} forms its batches from the requests that arrive."
        return None if facts.device.memory_bytes else "The trace does not state the device's memory capacity."

    def check(self, facts: Facts) -> Findings:
        starved, held = dispatch_ns(facts), facts.composition
        if held is None or starved < self.min_starved * facts.step_ns or peak_share(facts) > self.max_share:
            return
        factor = self._factor(facts, held)
        if factor is not None and factor < self.min_factor:
            return
        yield self.finding(
            risk=larger_batch_risk(facts),
            why=(
                f"Memory peaks at {peak_of_capacity(facts)}. The GPU waits {ms(starved)} of {each_step(facts)} for "
                f"launches, and a larger batch needs no more of them. {_growth(held, factor)}"
            ),
            locations=loader_places(facts) if facts.trains else [],
            evidence=[Evidence(of_memory("Peak allocated"), detail=size(held.total)), *parts(held)],
            fix=Fix(
                "Raise the batch size in steps, as long as the time per sample falls."
                if factor is None or factor >= MANY
                else f"Raise the batch size; about {factor:.2g} times fills {percent(self.usable)} of the memory.",
                edits=[SetArguments("DataLoader", {"batch_size": "2 * batch_size"})] if facts.trains else [],
            ),
            shares_cause_with=["LB002"],
        )

    def _factor(self, facts: Facts, held: Composition) -> float | None:
        """How many times the batch fits, given resident memory and the allocator's reserved but unused memory. None if
        unknown: graphs keep the memory of what they replay.
        """
        if facts.repetition.replayed_share > 0:
            return None
        free = self.usable * (facts.device.memory_bytes or 0) - held.resident
        spread = peak_share(facts) * (facts.device.memory_bytes or 0) / max(1, held.total)
        return free / max(1.0, held.of_the_batch * max(1.0, spread))

    def passed(self, facts: Facts) -> str:
        starved = percent(dispatch_ns(facts) / facts.step_ns)
        return (
            f"Memory peaks at {peak_of_capacity(facts)}; the GPU waits for launches for {starved} of {the_step(facts)}."
        )


def _growth(held: Composition, factor: float | None) -> str:
    """How much of the peak was measured to come and go with the batch, and what follows."""
    if factor is None:
        return f"{CUDA_GRAPH}s keep the memory of a batch, so how much of the peak grows with it is unknown."
    grows = f"{size(held.of_the_batch)} of the peak grow with the batch"
    return (
        f"{grows}{', so memory does not limit it' if factor >= MANY else f': about {factor:.2g} times the batch fits'}."
    )
