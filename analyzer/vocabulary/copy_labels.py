"""Names of copies and fills in Kineto's spelling, from the fields that PyTorch's CUPTI backend records instead.

Kineto names a copy "Memcpy HtoD (Pageable -> Device)". The newer backend (2026) names every copy "Memcpy" and has the
rest in `args`: "copy kind", "src kind", "dst kind" of copies, "memory kind" of fills. Values are words or, where the
backend has no word, the numbers of `CUpti_ActivityMemcpyKind` and `CUpti_ActivityMemoryKind`.
"""

from __future__ import annotations

from functools import lru_cache

UNLABELED = frozenset(("Memcpy", "Memset"))
"""Names that say nothing about direction and memory."""

_DIRECTIONS = ("", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
_MEMORIES = ("Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")


@lru_cache(maxsize=256)
def copy_label(name: str, direction: object, source: object, target: object, memory: object) -> str:
    """Kineto's name for a copy or fill called "Memcpy" or "Memset"; the name itself where a field is unknown."""
    if name == "Memset":
        return f"Memset ({kind})" if (kind := _word(memory, _MEMORIES)) else name
    way = _word(direction, _DIRECTIONS)
    ends = (_word(source, _MEMORIES), _word(target, _MEMORIES))
    if not way:
        return name
    return f"Memcpy {way} ({ends[0]} -> {ends[1]})" if all(ends) else f"Memcpy {way}"


def _word(value: object, words: tuple[str, ...]) -> str:
    """The word for a kind, from its word in any case or its number; "" if it is unknown."""
    if isinstance(value, str):
        plain = value.replace("_", " ").lower()
        return next((word for word in words if word.lower() == plain), "")
    whole = isinstance(value, float) and value.is_integer() and 0 <= value < len(words)
    return words[int(value)] if whole and isinstance(value, float) else ""
