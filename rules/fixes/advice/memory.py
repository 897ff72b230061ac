"""Shared by the memory rules: sizes in words, the peak against the capacity, what steps leave behind, and how much each
remedy frees.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.memory.blocks import AFTER
from traceopt.analyzer.memory.composition import ACTIVATIONS, GRADIENTS, OPTIMIZER_STATE, PARAMETERS, Composition
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.result.finding import Evidence, Location
from traceopt.result.words.message import of_memory, percent, size
from traceopt.result.words.rounding import rate

MANY_BLOCKS = 16  # fewest stored activations for which recomputation pays off


class Remedy(Struct, frozen=True):
    """One way to free memory. `bytes`: how much it frees at this peak, None if the trace does not tell."""

    name: str
    bytes: int | None
    code: str | None = None


class Retained(Struct, frozen=True):
    """What an operator allocates in each step and is not freed in it, and the line that calls it most often."""

    operator: str
    calls_per_step: float
    bytes_per_step: float
    site: Location | None

    @property
    def evidence(self) -> Evidence:
        detail = f"retains {size(self.bytes_per_step)} per step"
        return Evidence(self.operator, calls_per_step=rate(self.calls_per_step), detail=detail, location=self.site)


def peak_bytes(facts: Facts) -> int:
    """Peak reserved memory, which the device cannot use otherwise; peak allocated if reserved was not recorded."""
    memory = facts.memory
    return (memory.peak_reserved or memory.peak_allocated or 0) if memory else 0


def recomputed_bytes(facts: Facts) -> float:
    """Bytes that the recomputations of a step allocate and hold past their own end; 0 if it was not recorded. Only the
    steps with recorded memory count: with `traceopt run` it may be one.
    """
    memory, blocks, every = facts.memory, facts.blocks, facts.recorded_steps
    if memory is None or blocks is None:
        return 0.0
    held = blocks.outlive(facts.regions.area(facts.regions.recompute))
    stored = every.per_step(every.host_step_of(blocks.start[held]), blocks.bytes[held])
    return median(stored[memory.peak_by_step(every) >= 0])


def peak_share(facts: Facts) -> float:
    """The peak as a share of device memory."""
    return peak_bytes(facts) / (facts.device.memory_bytes or 1)


def peak_of_capacity(facts: Facts) -> str:
    """ "28.0 GiB of 39.4 GiB (71%)"."""
    return f"{size(peak_bytes(facts))} of {size(facts.device.memory_bytes)} ({percent(peak_share(facts))})"


def parts(composition: Composition | None) -> list[Evidence]:
    """One row per part of the peak."""
    held = composition.bytes if composition else {}
    return [
        Evidence(of_memory(f"At the peak: {name[:1].lower()}{name[1:]}"), detail=size(count), inside=True)
        for name, count in held.items()
    ]


def remedies(facts: Facts) -> list[Remedy]:
    """Ways to free memory in the order to try them, cheapest change first; those that free nothing are left out."""
    held = facts.composition
    known = held is not None and held.of(PARAMETERS) > 0
    found = [_mixed_precision(facts, held)]
    if facts.trains:
        found += [_checkpointing(facts, held), _accumulation(held)]
        found += _optimizer(facts, held if known else None)
        found += _sharded(facts, held if known else None)
    elif facts.infers:
        found += [_smaller_batch(held), _four_bit_weights(facts, held)]
    return [one for one in found if one is not None and (one.bytes is None or one.bytes > 0)]


def as_evidence(found: list[Remedy]) -> list[Evidence]:
    return [Evidence(one.name, detail=f"frees about {size(one.bytes)}") for one in found if one.bytes is not None]


def in_words(found: list[Remedy]) -> str:
    """ "mixed precision (1.2 GB), activation checkpointing (4.0 GB), ..."."""
    return ", ".join(inside(one.name) + (f" ({size(one.bytes)})" if one.bytes is not None else "") for one in found)


def inside(name: str) -> str:
    """A remedy's name for use inside a sentence; acronyms stay in capitals."""
    return (
        name
        if name[:2].isupper() or name[1:2].isupper() or name.startswith(("LoRA", "Ze"))
        else name[:1].lower() + name[1:]
    )


def retained(facts: Facts) -> list[Retained]:
    """The operators whose allocations are still alive at the end (but not those of the last step with recorded memory),
    most bytes first.
    """
    memory, blocks, every = facts.memory, facts.blocks, facts.recorded_steps
    if memory is None or blocks is None:
        return []
    sampled = np.flatnonzero(memory.peak_by_step(every) >= 0)
    if len(sampled) < 2:
        return []
    start, end = every.host_start[sampled[[0, -1]]]
    alive = np.flatnonzero((blocks.end == AFTER) & (blocks.start >= start) & (blocks.start < end))
    at = facts.slices.at_threads(blocks.thread[alive], blocks.start[alive])
    at = facts.slices.ancestor(at, facts.slices.kind == OP).astype(np.int64)
    alive, at = alive[at >= 0], at[at >= 0]
    steps = len(sampled) - 1
    return [
        Retained(one.name, len(one.rows) / steps, one.total / steps, facts.call_sites.most_frequent(one.rows))
        for one in facts.slices_by_name(at, blocks.bytes[alive])
    ]


def _mixed_precision(facts: Facts, held: Composition | None) -> Remedy | None:
    """16-bit results take half the memory. If matmuls already run in 16 bits, there is nothing left to gain."""
    if facts.tensor_core_work.dtype.among("fp16", "bf16", "fp8", "fp4").any():
        return None
    return Remedy(
        "Mixed precision",
        None if held is None else held.of_the_batch // 2,
        f'with torch.autocast("cuda", dtype=torch.{facts.device.half}): ...',
    )


def _checkpointing(facts: Facts, held: Composition | None) -> Remedy | None:
    """Of n equal results 2 sqrt(n) stay: the checkpoints and one segment between two (Chen et al. 2016)."""
    if facts.regions.recompute.any():
        return None
    code = "hidden = torch.utils.checkpoint.checkpoint(block, hidden, use_reentrant=False)"
    if held is None:
        return Remedy("Activation checkpointing", None, code)
    count = held.activation_blocks
    gain = round(held.of(ACTIVATIONS) * (1 - 2 / sqrt(count))) if count >= MANY_BLOCKS else 0
    return Remedy("Activation checkpointing", gain, code)


def _accumulation(held: Composition | None) -> Remedy:
    return Remedy(
        "Gradient accumulation over two half batches",
        None if held is None else held.of_the_batch // 2,
        "(loss / 2).backward()  # twice, then optimizer.step()",
    )


def _smaller_batch(held: Composition | None) -> Remedy:
    return Remedy("A smaller batch", None if held is None else held.of_the_batch // 2)


def _optimizer(facts: Facts, held: Composition | None) -> list[Remedy]:
    """Fewer bytes of state per parameter, or fewer parameters to train."""
    state = facts.model_state
    eight = "optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())"
    lora = "model = peft.get_peft_model(model, peft.LoraConfig(...))"
    if held is None or state is None:
        return [Remedy("An 8-bit optimizer", None, eight), Remedy("LoRA, or QLoRA in 4 bits", None, lora)]
    optimizer = held.of(OPTIMIZER_STATE)
    moments = 2 * state.parameters if "adam" in (state.optimizer or "").lower() else 0  # one byte each in 8 bits
    trained = optimizer + held.of(GRADIENTS)
    weights = held.of(PARAMETERS) - state.parameters // 2
    return [
        Remedy("An 8-bit optimizer", max(0, optimizer - moments) if moments else 0, eight),
        Remedy("LoRA for fine-tuning", trained, lora),
        Remedy("QLoRA with weights in 4 bits", trained + max(0, weights)),
    ]


def _sharded(facts: Facts, held: Composition | None) -> list[Remedy]:
    """Persistent memory sharded over the ranks (Rajbhandari et al. 2020), or moved to the host."""
    code = "for block in model.layers: fully_shard(block)\nfully_shard(model)"
    ranks = max(2, facts.trace.meta.world_size or 1)
    if held is None:
        return [Remedy("ZeRO or FSDP", None, code), Remedy("Offloading to the CPU", None)]
    away = 1 - 1 / ranks
    moments, gradients, weights = (held.of(part) for part in (OPTIMIZER_STATE, GRADIENTS, PARAMETERS))
    return [
        Remedy(f"ZeRO-1 over {ranks} GPUs", round(away * moments)),
        Remedy(f"ZeRO-2 over {ranks} GPUs", round(away * (moments + gradients))),
        Remedy(f"ZeRO-3 or FSDP over {ranks} GPUs", round(away * (moments + gradients + weights)), code),
        Remedy("Optimizer state offloaded to the CPU", moments),
    ]


def _four_bit_weights(facts: Facts, held: Composition | None) -> Remedy | None:
    """Only where the weights are known: what fills the memory may be a KV cache instead."""
    state = facts.model_state
    if held is None or state is None or not held.of(PARAMETERS):
        return None
    gain = held.of(PARAMETERS) - state.parameters // 2
    return Remedy("Weights in 8 or 4 bits", gain, "BitsAndBytesConfig(load_in_4bit=True)")
