"""No program reads a sentence: with all words replaced, everything but the words stays as it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from traceopt.comparison.gates import parse_gate
from traceopt.result.message import Message, Slot

if TYPE_CHECKING:
    pass

GATES = [parse_gate(text) for text in ("medium", "finding=new-high", "step_time=+5%", "gpu_idle=40%")]


def nonsense(words: str) -> str:
    """Other letters in the same places, so that lines break where they did."""
    return re.sub("[A-Za-z]", lambda letter: "Ж" if letter[0].isupper() else "ж", words)


def meaning(value: Any) -> Any:
    """A document without its words: of each message, what its slots speak of."""
    if isinstance(value, Message):
        return [(part.kind, part.value) for part in value.parts if isinstance(part, Slot)]
    if isinstance(value, Struct):
        return {field: meaning(getattr(value, field)) for field in value.__struct_fields__}
    return [meaning(item) for item in value] if isinstance(value, list | tuple) else value


def skeleton(page: str) -> list[str]:
    """The parts of a page and its links."""
    return re.findall(r"<(\w+)|\s(?:id|href|class|data-[a-z]+)=(?:\"([^\"]*)\"|(\S+))", without_scripts(page))


def without_scripts(page: str) -> str:
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
