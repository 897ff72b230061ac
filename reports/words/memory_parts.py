"""The parts of the memory peak: how each is drawn, and what makes it smaller."""

from __future__ import annotations

from msgspec import Struct


class MemoryLook(Struct, frozen=True):
    """`color` is one of palette.css; `remedy` makes the part smaller."""

    color: str
    pattern: str
    remedy: str


MEMORY_PARTS = {
    "Parameters": MemoryLook("compute", "", "sharding across ranks (FSDP); LoRA on quantized weights"),
    "Gradients": MemoryLook("backward", "", "sharding (FSDP, ZeRO); training fewer parameters"),
    "Optimizer state": MemoryLook("copy", "", "an 8-bit optimizer; sharding (ZeRO); training fewer parameters"),
    "Activations": MemoryLook("comm", "", "activation checkpointing; smaller micro-batches; 16-bit autocast"),
    "Temporary results": MemoryLook("launch", "", "smaller micro-batches; fused kernels and losses in chunks"),
    "Other, resident": MemoryLook(
        "other", "dots", "dropping references; torch.cuda.memory._snapshot() names the owner"
    ),
}
_UNKNOWN = MemoryLook("other", "dots", "")

RULE_FAMILY = "MM"  # rules about memory


def memory_look(name: str) -> MemoryLook:
    """The look of a part. A part that this version does not know is gray and has no remedy."""
    return MEMORY_PARTS.get(name, _UNKNOWN)
