"""Strings and numbers as a person reads them: hostile text made visible, and the wording of quantities.

Measured times keep one decimal, estimates are rounded to two significant digits and carry "≈", percentages
have no space, units stand behind a no-break space, and what was not measured reads "not recorded", never 0.
"""

from __future__ import annotations

import math
import re
from typing import Any, TypeVar

import msgspec

from traceopt.result.finding import Location

Document = TypeVar("Document")

NO_BREAK_SPACE = "\u00a0"
NOT_RECORDED = "not recorded"
NAME_CAP = 300  # characters shown of a name, path or label
PATH_CAP = 36  # characters of a path where the whole of it stands elsewhere
PROSE_CAP = 2_000  # characters shown of a sentence

_GIB = 1 << 30
_MIB = 1 << 20

# Visible as blanks although Unicode calls them letters (Hangul fillers, Braille blank).
_BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0\u2800")
_KEPT_SPACES = frozenset(" \u00a0\u202f")

_PROSE_FIELDS = frozenset({"verdict", "text", "reason", "why", "basis", "detail", "warnings", "notes"})
_SOURCE_CODE_FIELDS = frozenset({("fix", "code"), ("fix", "patch")})
_UNIT_AFTER_NUMBER = re.compile(r"(\d) (ms|µs|s|[KMGT]i?B|GB/s|TFLOP/s)\b")
_SPACE_BEFORE_PERCENT = re.compile(r"(?<=\d)[ \u00a0]%")
_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z])")


def _visible(char: str) -> str:
    """The character, or its escape if it is a control, a bidi mark or has no width."""
    if char in _KEPT_SPACES or (char.isprintable() and char not in _BLANK_LETTERS):
        return char
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def clean(text: str, cap: int = NAME_CAP) -> str:
    """One line of at most `cap` characters (the middle goes), none of which can move or hide text."""
    if not text.isprintable() or not _BLANK_LETTERS.isdisjoint(text):
        text = "".join(map(_visible, text[: 4 * cap]))
    if len(text) <= cap:
        return text
    head = cap // 2
    return text[:head] + "…" + text[len(text) - (cap - head - 1) :]


def clean_source(text: str) -> str:
    """Source code or a patch: lines and tabs stay, everything else is cleaned."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(clean(piece, PROSE_CAP) for piece in line.split("\t")) for line in lines)


def prose(text: str) -> str:
    """A cleaned sentence: no number parts from its unit at the end of a line, and percentages have no space."""
    closed = _SPACE_BEFORE_PERCENT.sub("%", clean(text, PROSE_CAP))
    return _UNIT_AFTER_NUMBER.sub(rf"\1{NO_BREAK_SPACE}\2", closed)


def sentences(text: str) -> list[str]:
    """`text` cut where a full stop, a space and a capital follow each other."""
    return _SENTENCE_END.split(text)


def first_sentence(text: str) -> tuple[str, str]:
    """The first sentence of `text`, and what follows it."""
    first, *rest = sentences(text)
    return first, " ".join(rest)


def without_commands(output: str) -> str:
    """Output for a terminal or CI log in which no trace string is a GitHub workflow command.

    The runner obeys "::" at the start of a line and "##[" anywhere (actions/runner, ActionCommand.cs).
    """
    return without_old_commands(re.sub(r"^(\s*)::", r"\1.:", output, flags=re.MULTILINE))


def without_old_commands(output: str) -> str:
    return output.replace("##[", "#.[")


def cleaned(document: Document) -> Document:
    """The document with every string made safe to show. Renderers read this one; JSON keeps the original."""
    return msgspec.convert(_cleaned(msgspec.to_builtins(document), "", ""), type(document))


def _cleaned(value: Any, field: str, parent: str) -> Any:
    if isinstance(value, str):
        if (parent, field) in _SOURCE_CODE_FIELDS:
            source = clean_source(value)
            return source if field == "code" or source == value else None  # a patch that was changed does not apply
        return prose(value) if field in _PROSE_FIELDS else clean(value)
    if isinstance(value, dict):
        return {key: _cleaned(item, key, field) for key, item in value.items()}
    if isinstance(value, list):
        return [_cleaned(item, field, parent) for item in value]
    return value


def _grouped(value: float, decimals: int) -> str:
    return f"{value:,.{max(0, decimals)}f}"


def _two_digit_decimals(value: float) -> int:
    """Decimals that leave two significant digits; negative for numbers of 100 and more."""
    magnitude = math.floor(math.log10(value))
    rounded = round(value, 1 - magnitude)  # 9.96 becomes 10, which has a digit more
    return 1 - math.floor(math.log10(rounded))


def two_digits(value: float) -> str:
    """`value` >= 0 to two significant digits: 198 -> "200", 4.24 -> "4.2"."""
    if value <= 0:
        return "0"
    decimals = _two_digit_decimals(value)
    return _grouped(round(value, decimals), decimals)


def measured(value: float | None) -> str:
    """One decimal, or two significant digits below 1; nothing at all is 0."""
    if value is None:
        return NOT_RECORDED
    if value == 0:
        return "0"
    return two_digits(value) if 0 < value < 1 else _grouped(value, 1)


def ms_number(us: float | None) -> str:
    """Microseconds as a measured number of milliseconds, without the unit (for columns headed "ms")."""
    return NOT_RECORDED if us is None else measured(us / 1_000)


def ms(us: float | None) -> str:
    return NOT_RECORDED if us is None else ms_number(us) + NO_BREAK_SPACE + "ms"


def estimate_number(us: float) -> str:
    """Microseconds as an estimated number of milliseconds: two significant digits."""
    return two_digits(us / 1_000)


def estimate(us: float) -> str:
    return f"≈{NO_BREAK_SPACE}{estimate_number(us)}{NO_BREAK_SPACE}ms"


def estimate_range(low_us: float, high_us: float) -> str:
    return f"{estimate_number(low_us)}–{estimate_number(high_us)}{NO_BREAK_SPACE}ms"


def saved_per_step(us: float, share: float) -> str:
    """ "150 ms per step (36%)"."""
    return f"{estimate_number(us)}{NO_BREAK_SPACE}ms per step ({percent(share)})"


def as_precise_as(us: float, reference_us: float) -> str:
    """Milliseconds, rounded where the two digits of `reference_us` end: 214 beside a saving of 198 is 210."""
    value, reference = us / 1_000, reference_us / 1_000
    if value <= 0 or reference <= 0:
        return two_digits(value)
    decimals = min(_two_digit_decimals(reference), 1)
    rounded = round(value, decimals)
    return _grouped(rounded, decimals) if rounded > 0 else two_digits(value)


def signed_percent(share: float | None) -> str:
    """A change with one decimal, or whole per cent from ten on: "+5.2%", "−28%"."""
    if share is None:
        return NOT_RECORDED
    value = share * 100
    return f"{value:+.0f}%".replace("-", "−") if abs(value) >= 9.95 else f"{value:+.1f}%".replace("-", "−")


def signed_ms_number(us: float) -> str:
    """A change of a measured time in milliseconds, without the unit: "+0.62", "−57.6"."""
    return f"{'−' if us < 0 else '+'}{ms_number(abs(us))}"


def percent(share: float | None) -> str:
    """A share of 0..1 as whole per cent; one decimal below 1%."""
    if share is None:
        return NOT_RECORDED
    value = share * 100
    if 0 < value < 0.1:
        return "<0.1%"
    return f"{value:.1f}%" if 0 < value < 0.95 else f"{value:.0f}%"


def count(value: float | None) -> str:
    """Calls per step and the like: whole numbers plain, others with one decimal."""
    if value is None:
        return NOT_RECORDED
    return f"{round(value):,}" if abs(value - round(value)) < 0.05 else measured(value)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def bytes_parts(number: float) -> tuple[str, str]:
    """A memory size and its unit, GiB or MiB."""
    return (measured(number / _GIB), "GiB") if number >= _GIB / 10 else (measured(number / _MIB), "MiB")


def bytes_text(number: float | None) -> str:
    return NOT_RECORDED if number is None else NO_BREAK_SPACE.join(bytes_parts(number))


def mib_number(number: float | None) -> str:
    return NOT_RECORDED if number is None else measured(number / _MIB)


def yes_no(value: bool | None) -> str:
    return "unknown" if value is None else ("yes" if value else "no")


def is_name(text: str) -> bool:
    """Whether this is a name of code or of an event, and no phrase: such are set in a fixed-width font."""
    return " " not in text or any(mark in text for mark in ("::", "(", "<", "_"))


def where(location: Location | None) -> str:
    return NOT_RECORDED if location is None else str(location)


def short_path(path: str) -> str:
    """The end of a path, cut before a folder where it can be: "…/adapters/pipeline/model.py:40"."""
    if len(path) <= PATH_CAP:
        return path
    ends = (path[start:] for start, char in enumerate(path) if char == "/")
    return "…" + next((end for end in ends if len(end) < PATH_CAP), path[1 - PATH_CAP :])


def joined(words: list[str]) -> str:
    """ "1, 2 and 4"."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def short_kernel_name(name: str) -> str:
    """A kernel's own name without return type, namespaces, template arguments and parameters.

    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, ...>(int, ...)" is
    "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, ...>" in 60 characters at most.
    """
    short = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    if "<" in short or "::" in short:
        short = short.partition("(")[0] or short
        short = re.sub(r"\b(?:\w+::)+", "", short)
    return short if len(short) <= 60 else short[:59] + "…"
