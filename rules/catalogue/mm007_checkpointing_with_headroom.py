"""MM007: activations are recomputed although there is memory to store them."""

from __future__ import annotations

import numpy as np

from traceopt.rules import (
    I8,
    Call,
    Evidence,
    Facts,
    Findings,
    Fix,
    Former,
    Price,
    RemoveCall,
    Risk,
    Rule,
    area_of,
    by_calling_site,
    each_step,
    kernel_evidence,
    ms,
    percent,
    rate,
    size,
    the_step,
    threshold,
    us,
)
from traceopt.rules.fixes.advice.memory import peak_bytes, peak_of_capacity, recomputed_bytes
from traceopt.rules.savings.work.backward_nodes import Shares, held_ns, without_nodes

# Of the recomputation that need not be: at least, as expected, at best. Writing and reading what is stored takes time.
REMOVED: Shares = (0.7, 0.9, 1.0)
REMOVED_UNMEASURED: Shares = (0.3, 0.7, 1.0)  # if the memory to store activations was not recorded
REMOVED_ON_CPU: Shares = (0.6, 0.95, 1.0)
HALF = 0.5  # of the layers, every second one: simple to do, and simple to see


class CheckpointingWithHeadroom(Rule):
    """Measures the forward work that the backward pass recomputes (activation checkpointing), on a device with room to
    store the results instead: the GPU's work, and its waits for the host meanwhile; in a run without a GPU, the
    operators. Also measures how much memory that would take: what each recomputation allocates and holds past its own
    end. `traceopt run` records how much memory a CPU-only run has available between the steps.

    Why it costs: a fully checkpointed model runs its forward pass twice, which is a third more work. It shows as
    hardware utilization (HFU) above model utilization (MFU). The memory of a host is often many times larger than the
    activations of a model that trains on a CPU.

    How to fix: checkpoint only as many blocks as memory requires.

        for index, block in enumerate(self.blocks):
            if index % 2:      # every second block keeps its activations
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)

    When it is wrong: inputs longer than those of the recorded steps may need the memory. Other processes on the device
    are not seen. A script that will train a larger model on a GPU may need checkpointing there. If the memory of a
    CPU-only run was not recorded, the finding has no saving.

    Sources: Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016); Korthikanti et al., "Reducing
    Activation Recomputation" (2022); PyTorch documentation, "torch.utils.checkpoint".
    """

    code = "MM007"
    name = "checkpointing-with-headroom"
    title = "Checkpoint fewer layers"
    family = "memory"
    risk = Risk.MEMORY
    risk_note = "Uses the free memory"
    confidence = "medium"
    requires = ("gpu", "launches", "memory")
    requires_on_cpu = ("whole", "ops")
    former = (Former("CP007", "cpu-checkpointing", {"usable": "usable_on_cpu"}),)

    min_share: float = threshold(0.03, "smallest recomputation, as a share of the step, to report")
    usable: float = threshold(0.90, "share of device memory to fill")
    usable_on_cpu: float = threshold(0.5, "share of the host's available memory to fill in a CPU-only run")

    def applies(self, facts: Facts) -> str | None:
        if facts.has_gpu and not facts.device.memory_bytes:
            return "The trace does not state the device's memory capacity."
        return None if facts.regions.recompute.any() else "The backward pass recomputes nothing."

    def check(self, facts: Facts) -> Findings:
        rows = facts.slices.outermost(facts.regions.recompute)
        time_ns = float(held_ns(facts, rows).sum()) / facts.steps.count
        needed, free = recomputed_bytes(facts), self._free_bytes(facts)
        part = min(1.0, max(0.0, free) / needed) if needed and free is not None else 1.0
        part = HALF if HALF <= part < 1 else part
        full = facts.has_gpu and free is not None and free <= 0
        if full or part * time_ns < self.min_share * facts.step_ns:
            return
        room = [] if free is None else [Evidence("Free memory that may be used", detail=size(free))]
        yield self.finding(
            why=_on_gpu(facts, rows, time_ns, needed) if facts.has_gpu else _on_cpu(facts, time_ns, needed),
            saving=_price(facts, rows, part, needed) if facts.has_gpu or (needed and free is not None) else None,
            evidence=[*room, *_evidence(facts, time_ns)],
            fix=_fix(facts, part),
        )

    def _free_bytes(self, facts: Facts) -> float | None:
        """What this process can use besides what its steps use already; None if it is not known."""
        memory = facts.memory
        if facts.has_gpu:
            return self.usable * (facts.device.memory_bytes or 0) - peak_bytes(facts)
        available = facts.captured.environment.available_memory_bytes
        if available is None or memory is None:
            return None
        in_steps = (memory.peak_allocated or 0) - (memory.allocated_before or 0)
        return self.usable_on_cpu * available / (facts.captured.environment.local_world_size or 1) - in_steps

    def passed(self, facts: Facts) -> str:
        rows = facts.slices.outermost(facts.regions.recompute)
        share = float(held_ns(facts, rows).sum()) / facts.steps.window_ns
        peak = f"; memory peaks at {peak_of_capacity(facts)}" if facts.has_gpu else ""
        return f"Recomputation takes {percent(share)} of {the_step(facts)}{peak}."


def _on_gpu(facts: Facts, rows: I8, time_ns: float, needed: float) -> str:
    host = ms(facts.steps.host_mean_ns(area_of(facts, rows)))
    return (
        f"The backward pass recomputes activations. That takes the GPU {ms(time_ns)} of {each_step(facts)}, its waits "
        f"included, and the host {host}. Memory peaks at {peak_of_capacity(facts)}; {_storing(needed)}."
    )


def _on_cpu(facts: Facts, time_ns: float, needed: float) -> str:
    storing = _storing(needed)
    return (
        f"The backward pass recomputes activations for {ms(time_ns)} of {each_step(facts)}. "
        f"{storing[0].upper()}{storing[1:]}."
    )


def _storing(needed: float) -> str:
    return f"storing them takes {size(needed)}" if needed else "the memory to store them was not recorded"


def _evidence(facts: Facts, time_ns: float) -> list[Evidence]:
    """The lines that call `checkpoint`, and the kernels or the time."""
    if not facts.has_gpu:
        return [Evidence("Recomputation in the backward pass", us(time_ns)), *_calls(facts)]
    recomputed = facts.gpu.is_kernel & facts.regions.work_under(facts.regions.recompute)
    return [*_calls(facts), *kernel_evidence(facts, recomputed)]


def _calls(facts: Facts) -> list[Evidence]:
    calls = np.flatnonzero(facts.regions.checkpoint)
    sites = by_calling_site(facts, calls)
    return [
        Evidence("checkpoint()", calls_per_step=rate(site.calls / facts.steps.count), location=site.location)
        for site in sites
    ]


def _price(facts: Facts, rows: I8, part: float, needed: float) -> Price:
    if not facts.has_gpu:
        low, expected, most = (share * part for share in REMOVED_ON_CPU)
    else:
        low, expected, _ = (share * part for share in (REMOVED if needed else REMOVED_UNMEASURED))
        most = 1.0
    return without_nodes(
        facts,
        rows[:0],
        0.0,
        0.0,
        "The recomputation's work and launches, as far as the stored activations fit in the free memory.",
        partly=(rows, (low, expected, most)),
    )


def _fix(facts: Facts, part: float) -> Fix:
    if part < HALF:
        return Fix(f"Checkpoint only {percent(1 - part)} of the layers.", "if index % 4: x = checkpoint(block, x)")
    if part < 1:
        return Fix(
            "Checkpoint only every second layer.",
            "if index % 2 == 0: x = checkpoint(block, x)",
            edits=[RemoveCall("torch.utils.checkpoint.checkpoint", 2)],
        )
    if facts.has_gpu:
        return Fix("Turn off checkpointing.", edits=[Call("model.gradient_checkpointing_disable")])
    return Fix(
        "Call the layers without checkpoint().",
        "x = layer(x)  # instead of checkpoint(layer, x)",
        edits=[RemoveCall("torch.utils.checkpoint.checkpoint")],
    )
