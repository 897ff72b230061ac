"""MM007: activations are recomputed although there is memory to store them."""

from __future__ import annotations

from traceopt.rules import (
    Evidence,
    Facts,
    Findings,
    Fix,
    Risk,
    Rule,
    area_of,
    each_step,
    kernel_evidence,
    ms,
    percent,
    places,
    size,
    the_step,
    threshold,
)
from traceopt.rules.fixes.advice.memory import peak_bytes, peak_of_capacity, recomputed_bytes
from traceopt.rules.savings.backward_nodes import held_ns, without_nodes


class CheckpointingWithHeadroom(Rule):
    """Measures the forward work that the backward pass recomputes (activation checkpointing), on a device with room to
    store the results instead: the GPU's work, and its waits for the host meanwhile. Also measures how much memory that
    would take: what each recomputation allocates and holds past its own end.

    Why it costs: a fully checkpointed model runs its forward pass twice, which is a third more work. It shows as
    hardware utilization (HFU) above model utilization (MFU).

    How to fix: checkpoint only as many blocks as memory requires.

        for index, block in enumerate(self.blocks):
            if index % 2:      # every second block keeps its activations
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)

    When it is wrong: inputs longer than those of the recorded steps may need the memory. Other processes on the device
    are not seen.

    Sources: Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016); Korthikanti et al., "Reducing
    Activation Recomputation" (2022).
    """

    code = "MM007"
    name = "checkpointing-with-headroom"
    title = "Checkpoint fewer layers"
    family = "memory"
    risk = Risk.MEMORY
    risk_note = "Uses the free memory"
    confidence = "medium"
    requires = ("gpu", "launches", "memory")

    min_share: float = threshold(0.03, "smallest recomputation, as a share of the step, to report")
    usable: float = threshold(0.90, "share of device memory to fill")

    def applies(self, facts: Facts) -> str | None:
        if not facts.device.memory_bytes:
            return "The trace does not state the device's memory capacity."
        return None if facts.regions.recompute.any() else "The backward pass recomputes nothing."

    def check(self, facts: Facts) -> Findings:
        work = facts.gpu.is_kernel & facts.regions.work_under(facts.regions.recompute)
        rows = facts.slices.outermost(facts.regions.recompute)
        time = float(held_ns(facts, rows).sum()) / facts.steps.count
        free = self.usable * (facts.device.memory_bytes or 0) - peak_bytes(facts)
        if time < self.min_share * facts.step_ns or free <= 0:
            return
        needed = recomputed_bytes(facts)
        part = min(1.0, free / needed) if needed else 1.0
        if part * time < self.min_share * facts.step_ns:
            return
        evidence = kernel_evidence(facts, work)
        storing = f"storing them takes {size(needed)}" if needed else "the memory to store them was not recorded"
        yield self.finding(
            why=(
                f"The backward pass recomputes activations. That takes the GPU {ms(time)} of {each_step(facts)}, its "
                f"waits included, and the host {ms(facts.steps.host_mean_ns(area_of(facts, rows)))}. Memory peaks at "
                f"{peak_of_capacity(facts)}; {storing}."
            ),
            saving=without_nodes(
                facts,
                rows[:0],
                0.0,
                0.0,
                "The recomputation's work and launches, as far as the stored activations fit in the free memory.",
                partly=(rows, ((0.7 if needed else 0.3) * part, (0.9 if needed else 0.7) * part, 1.0)),
            ),
            evidence=[Evidence("Free memory", detail=size(free)), *evidence],
            locations=places(evidence),
            fix=Fix(
                "Turn off checkpointing." if part >= 1 else f"Checkpoint only {percent(1 - part)} of the layers.",
                "model.gradient_checkpointing_disable()" if part >= 1 else "if index % 2: x = checkpoint(block, x)",
            ),
        )

    def passed(self, facts: Facts) -> str:
        rows = facts.slices.outermost(facts.regions.recompute)
        share = float(held_ns(facts, rows).sum()) / facts.steps.window_ns
        return f"Recomputation takes {percent(share)} of {the_step(facts)}; memory peaks at {peak_of_capacity(facts)}."
