"""MM002: device memory is almost full."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.memory.curve import find_retries
from traceopt.analyzer.vocabulary.causes.table import ALLOCATION
from traceopt.rules import (
    Evidence,
    Facts,
    Findings,
    Fix,
    Risk,
    Rule,
    by_site,
    each_step,
    ms,
    of_memory,
    priced,
    site_evidence,
    site_locations,
    size,
    threshold,
    typical_ns,
    without_calls,
)
from traceopt.rules.fixes.advice.companion_evidence import lines_at_the_peak
from traceopt.rules.fixes.advice.memory import as_evidence, in_words, parts, peak_of_capacity, peak_share, remedies

BASIS = "Assumes the driver calls and the waits in them are gone."


class MemoryPressure(Rule):
    """Measures the allocator's peak reserved memory (peak allocated if that was not recorded) against the device's
    capacity. Also counts allocations that failed at first: the allocator then frees its cache, which waits for the GPU,
    and retries.

    Why it costs: near the limit an allocation may fail (out of memory), or succeed only after the cache was freed, in
    every step. It also limits the batch size.

    How to fix, in this order, until it fits: mixed precision; activation checkpointing; gradient accumulation with a
    smaller micro-batch; an 8-bit optimizer; LoRA, or QLoRA with 4-bit weights, for fine-tuning; ZeRO or FSDP over
    several GPUs; offloading to the CPU.

        with torch.autocast("cuda", dtype=torch.bfloat16):
            hidden = torch.utils.checkpoint.checkpoint(block, hidden, use_reentrant=False)
        optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())

    When it is wrong: reserved memory is partly cache that the allocator could free. A server that reserves nearly
    everything by design (vLLM's gpu_memory_utilization) is full and healthy: the rule does not apply to vLLM, SGLang,
    TensorRT-LLM and TGI, but it does not know other servers. Other processes on the device are not seen.

    Sources: PyTorch documentation, "CUDA semantics: memory management"; torch-tb-profiler warns above 90 % too.
    """

    code = "MM002"
    name = "memory-pressure"
    title = "Reduce peak device memory before it runs out"
    family = "memory"
    risk = Risk.NUMERICS
    risk_note = "Lower precision changes numerics; checkpointing recomputes the forward pass"
    requires = ("gpu", "memory")

    min_share: float = threshold(0.90, "smallest peak, as a share of device memory, to report")

    def applies(self, facts: Facts) -> str | None:
        if facts.serving_engine is not None:
            return f"{facts.serving_engine} allocates its KV cache in advance: full memory is its normal state."
        return None if facts.device.memory_bytes else "The trace does not state the device's memory capacity."

    def check(self, facts: Facts) -> Findings:
        if facts.memory is None or peak_share(facts) < self.min_share:
            return
        retries = find_retries(facts.trace, facts.slices, facts.host.rows_of(ALLOCATION))
        start, end = facts.slices.start[retries], facts.slices.end[retries]
        failed = typical_ns(facts, start, np.ones(len(retries), np.int64))
        stall = facts.idle.typical_ns(ALLOCATION) if failed else 0.0
        sites = by_site(facts, retries, end - start)
        found = remedies(facts)
        yield self.finding(
            risk_note=None if facts.trains else "Lower precision changes numerics",
            why=f"Memory peaks at {peak_of_capacity(facts)}. {_consequence(facts, failed, stall)}",
            saving=priced(
                facts, (0.8 * stall, stall, 1.25 * stall), without_calls(facts, facts.host.rows_of(ALLOCATION)), BASIS
            )
            if stall
            else None,
            evidence=[
                Evidence(of_memory("Peak allocated"), detail=size(facts.memory.peak_allocated)),
                Evidence(of_memory("Peak reserved"), detail=size(facts.memory.peak_reserved)),
                *site_evidence(facts, sites, lambda _: "Allocation that failed at first"),
                *parts(facts.composition),
                *lines_at_the_peak(facts),
                *as_evidence(found),
            ],
            locations=site_locations(sites),
            fix=Fix(
                f"In this order, until it fits: {in_words(found)}.",
                "\n".join(remedy.code for remedy in found if remedy.code) or None,
            ),
            shares_cause_with=["MM003"] if stall else None,
        )

    def passed(self, facts: Facts) -> str:
        return f"Memory peaks at {peak_of_capacity(facts)}."


def _consequence(facts: Facts, failed: float, stall_ns: float) -> str:
    if not failed:
        return "A larger batch or a longer input would run out of memory."
    allocations = "allocation fails" if failed == 1 else "allocations fail"
    return (
        f"In {each_step(facts)} {failed:.0f} {allocations} at first, and the GPU waits {ms(stall_ns)} while "
        "the allocator frees its cache and retries."
    )
