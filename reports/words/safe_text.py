"""Text that is safe to print: hostile characters made visible, sentences split, units kept on their number's line."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from traceopt.result.words.message import Message
from traceopt.result.words.quantities import NO_BREAK_SPACE

Document = TypeVar("Document", bound=Struct)

NAME_CAP = 300  # characters shown of a name, path or label
PROSE_CAP = 2_000  # characters shown of a sentence

# Unicode calls these letters, but they look like blanks (Hangul fillers, Braille blank).
_BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0\u2800")
_KEPT_SPACES = frozenset(" \u00a0\u202f")

_PROSE_FIELDS = frozenset({"verdict", "text", "reason", "why", "basis", "detail", "warnings", "notes"})
_SOURCE_CODE_FIELDS = frozenset({("fix", "code"), ("fix", "patch"), ("tried", "patch")})
_UNIT_AFTER_NUMBER = re.compile(r"(\d) (ms|µs|s|[KMGT]i?B(?:/s)?|[GT]FLOP/s)\b")
_SPACE_BEFORE_PERCENT = re.compile(r"(?<=\d)[ \u00a0]%")
_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z])")


def _visible(char: str) -> str:
    """The character, or its escape if it is a control character, a bidi mark or has no width."""
    if char in _KEPT_SPACES or (char.isprintable() and char not in _BLANK_LETTERS):
        return char
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def clean(text: str, cap: int = NAME_CAP) -> str:
    """One line of at most `cap` characters, none of which can move or hide text. Longer text loses its middle."""
    if not text.isprintable() or not _BLANK_LETTERS.isdisjoint(text):
        text = "".join(map(_visible, text[: 4 * cap]))
    if len(text) <= cap:
        return text
    head = cap // 2
    return text[:head] + "…" + text[len(text) - (cap - head - 1) :]


def clean_source(text: str) -> str:
    """Source code or a patch, cleaned except for its lines and tabs."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(clean(piece, PROSE_CAP) for piece in line.split("\t")) for line in lines)


def prose(text: str) -> str:
    """A cleaned sentence with no space before "%" and no line break between a number and its unit."""
    return unbroken(_SPACE_BEFORE_PERCENT.sub("%", clean(text, PROSE_CAP)))


def unbroken(text: str) -> str:
    """`text` with a no-break space between each number and its unit."""
    return _UNIT_AFTER_NUMBER.sub(rf"\1{NO_BREAK_SPACE}\2", text)


def split_sentences(text: str) -> list[str]:
    """`text` split where a full stop, a space and a capital follow each other."""
    return _SENTENCE_END.split(text)


def first_sentence(text: str) -> tuple[str, str]:
    """The first sentence of `text`, and what follows it."""
    first, *rest = split_sentences(text)
    return first, " ".join(rest)


def without_commands(output: str) -> str:
    """Output for a terminal or CI log in which no string of a trace can act as a command of the CI system.

    GitHub's runner obeys "::" at the start of a line (actions/runner, ActionCommand.cs).
    """
    return without_old_commands(re.sub(r"^(\s*)::", r"\1.:", output, flags=re.MULTILINE))


def without_old_commands(output: str) -> str:
    """Breaks "##[" (GitHub), "##vso[" (Azure Pipelines) and "##teamcity[", which are obeyed anywhere in a line."""
    return re.sub(r"##(?=\w*\[)", "#.", output)


def cleaned(document: Document) -> Document:
    """The document with every string made safe to print. Renderers read this copy; JSON keeps the original."""
    return _cleaned_fields(document, "")


def _cleaned_fields(part: Document, name: str) -> Document:
    """`name`: of the field that holds this part."""
    fields = {field: getattr(part, field) for field in part.__struct_fields__}
    safe = {field: _cleaned(value, field, name) for field, value in fields.items()}
    changed = {field: value for field, value in safe.items() if value is not fields[field]}
    return replace(part, **changed) if changed else part


def _cleaned(value: Any, field: str, parent: str) -> Any:
    if isinstance(value, str) and not isinstance(value, Enum):
        if (parent, field) in _SOURCE_CODE_FIELDS:
            source = clean_source(value)
            return source if field == "code" or source == value else None  # a changed patch would not apply
        change = prose if field in _PROSE_FIELDS else clean
        return value.mapped(change) if isinstance(value, Message) else change(value)
    if isinstance(value, list):
        safe = [_cleaned(item, field, parent) for item in value]
        return safe if any(new is not old for new, old in zip(safe, value, strict=True)) else value
    if isinstance(value, Struct):
        return _cleaned_fields(value, field)
    if isinstance(value, dict):
        return {key: _cleaned(item, key, field) for key, item in value.items()}
    return value


def joined(words: list[str]) -> str:
    """ "1, 2 and 4"."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def yes_no(value: bool | None) -> str:
    return "unknown" if value is None else ("yes" if value else "no")
