"""Recovers events from damaged trace text: keeps every event that can be read and counts the rest.

Kineto has written raw quotes, backslashes, control characters, invalid UTF-8, NaN, and files truncated in the middle of
an event. The text is split where an event seems to begin, and each piece is decoded on its own.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw, Struct

from traceopt.analyzer.reading.event_types import Event, FlowStart, Slice, decode_event, lenient
from traceopt.analyzer.vocabulary import event_categories as cat

# What msgspec raises for text that it cannot decode.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

# An event begins with one of these keys in every known writer (Kineto: "ph"; json.dumps: any of them).
_KEYS = rb"(?:args|bp|cat|dur|id|name|ph|pid|s|tid|ts)"
_EVENT_START = re.compile(rb'\{\s*"ph"\s*:|(?:(?<=[\[,\s])|^)\{\s*"' + _KEYS + rb'"\s*:')
# No pattern here may scan the same bytes repeatedly: the text may be an attack.
_PHASE = re.compile(rb'"ph"\s*:\s*"')  # a key that every event has once
_NAME_BEGINS = re.compile(rb'"name"\s*:\s*"')
_NAME_ENDS = re.compile(rb'"\s*,\s*"' + _KEYS + rb'"\s*:')
# A string (it ends at the first quote that can be its last), a missing value, a C++ nan or inf.
_TOKEN = re.compile(
    rb'"([^"\\]*(?:(?:\\.|"(?!\s*(?:[:}\]]|,\s*["\[{\d\-tfn]|$)))[^"\\]*)*)("|\\?\Z)'
    rb"|(?<=:)\s*(?=[,}])|[-+]?\b(?:nan|inf)\b",
    re.S,
)
_ESCAPE_OR_BARE = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|["\\]')
_LONE_SURROGATE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
# Accepts control characters in strings, and NaN.
_TOLERANT = json.JSONDecoder(strict=False, parse_constant=lambda _: None)
_BETWEEN = " \t\r\n,]}"  # may occur between events or after the last one
_CLOSING = frozenset(b"]}")
_UNWRITTEN = b"\0" * 8  # a stretch of the file that was never written
_LOOK_AHEAD = 8  # pieces to join if an apparent start was inside an argument
_REPAIR_LIMIT_BYTES = 1 << 18  # known damaged events are shorter
_REPAIR_HEADER_LIMIT_BYTES = 1 << 20
PATIENCE = 1000  # lost events beyond the repaired ones, after which the text is not considered a trace


class Recovered(Struct):
    """`repaired` of the `events` could only be read after repairing their text; `lost` could not be read.

    `rest` is where a truncated last event begins; the length of the text if there is none. `unread_bytes` of the text
    before it hold no event that could be read.
    """

    events: list[Event] = []
    repaired: int = 0
    lost: int = 0
    rest: int = 0
    unread_bytes: int = 0


class _CutOffError(ValueError):
    """The text ends before the value does."""


def is_utf8(text: bytes) -> bool:
    """Whether all of the text is valid UTF-8. msgspec checks only the strings that it keeps."""
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def recover(text: bytes, final: bool, patience: int = PATIENCE) -> Recovered:
    """Reads the events inside a damaged array one by one. If the text is `final`, a truncated last event is lost.

    Repairing stops once `patience` more events were lost than repaired.
    """
    starts = [match.start() for match in _EVENT_START.finditer(text)]
    found = Recovered(rest=len(text))
    before = text[: starts[0]] if starts else text
    if _is_garbage(before):
        found.lost += 1
        found.unread_bytes += len(before)
    starts.append(len(text))
    at = 0
    after_loss = False  # what follows may be the rest of a lost event
    while at < len(starts) - 1:
        try:
            reading, pieces = _read_joined(text, starts, at, patient=found.lost < found.repaired + patience)
        except _CutOffError:
            if not final:
                found.rest = starts[at]
                break
            reading, pieces = None, 1
        if reading is None:
            found.lost += not after_loss or b'"ph"' in text[starts[at] : starts[at + 1]]
            found.unread_bytes += starts[at + 1] - starts[at]
            after_loss = True
        else:
            is_last = at + pieces == len(starts) - 1
            piece = text[starts[at] : starts[at + pieces]]
            # The end of another event follows it.
            joined = not (is_last or _CLOSING.isdisjoint(reading.rest))
            if reading.event is not None:
                joined |= reading.repaired and (_is_torn(reading.event) or len(_PHASE.findall(piece)) > 1)
                found.events.append(reading.event)
                # Without a comma, the text before the next event is missing.
                found.repaired += reading.repaired or not (is_last or piece.rstrip().endswith(b","))
                garbage = _is_garbage(reading.rest)
                found.lost += joined or garbage
                found.unread_bytes += len(reading.rest) * garbage
                after_loss = False
            elif (reading.repaired or joined) and (not after_loss or b'"ph"' in piece):
                found.lost += 1  # the rest of an event, or the repair turned it into something else
        at += pieces
    return found


class ReadEvent(Struct):
    """One JSON value as an event; None if it is not an event (for example an argument that looked like one)."""

    event: Event | None
    repaired: bool = False
    rest: bytes = b""  # what follows it


def read_event(text: bytes | Raw) -> ReadEvent | None:
    """Reads one well-formed element of the array; None if it cannot be read."""
    text = bytes(text)
    try:
        if is_utf8(text):
            return ReadEvent(decode_event(text))
    except UNREADABLE:
        pass
    try:
        return ReadEvent(lenient(msgspec.json.decode(text)))
    except UNREADABLE:
        pass
    try:
        return _read_tolerant(text, repair=False)
    except (ValueError, RecursionError):
        return None


def read_object(text: bytes) -> dict[str, Any]:
    """Reads a JSON object, repairing it if needed; empty if it cannot be read."""
    for repair in (False, True) if len(text) <= _REPAIR_HEADER_LIMIT_BYTES else (False,):
        try:
            value, _ = _TOLERANT.raw_decode(_decoded(_repair_text(text) if repair else text))
        except (ValueError, RecursionError):
            continue
        return value if isinstance(value, dict) else {}
    return {}


def _read_joined(text: bytes, starts: list[int], at: int, patient: bool) -> tuple[ReadEvent | None, int]:
    """The event that begins at `starts[at]` and how many pieces it takes; None if it cannot be read.

    Raises _CutOffError if the text ends before the event does.
    """
    piece = text[starts[at] : starts[at + 1]].rstrip(b" \t\r\n,")
    if _UNWRITTEN in piece:
        return None, 1
    try:
        if is_utf8(piece):
            return ReadEvent(decode_event(piece)), 1
    except UNREADABLE:
        pass
    ends = starts[at + 1 : at + 1 + _LOOK_AHEAD]
    try:
        return _read_shortest(text, starts[at], ends, repair=False)
    except _CutOffError:
        if ends[-1] == len(text):
            raise
    except (ValueError, RecursionError):
        if patient and ends[-1] - starts[at] <= _REPAIR_LIMIT_BYTES:
            with suppress(ValueError, RecursionError):
                return _read_shortest(text, starts[at], ends, repair=True)
    return None, 1


def _is_torn(event: Event) -> bool:
    """Whether two events run into each other in one whose text had to be repaired: arrows have no text of the user, and
    names of operators, calls and GPU work pair their quotes.
    """
    if not isinstance(event, Slice):
        return isinstance(event, FlowStart)
    in_tables = cat.TABLE_OF_CATEGORY.get(event.cat) in (cat.GPU, cat.RUNTIME, cat.OP)
    return in_tables and event.name.count('"') % 2 == 1


def _read_shortest(text: bytes, start: int, ends: list[int], repair: bool) -> tuple[ReadEvent, int]:
    """The value that begins at `start` and reaches one of `ends`, and how many pieces it takes."""
    for count, end in enumerate(ends[:-1], 1):
        try:
            return _read_tolerant(text[start:end], repair), count
        except _CutOffError:
            if count == 1:
                _read_tolerant(text[start : ends[-1]], repair)  # raises if more pieces do not help
    return _read_tolerant(text[start : ends[-1]], repair), len(ends)


def _read_tolerant(text: bytes, repair: bool) -> ReadEvent:
    """The JSON value at the start of the text. Raises ValueError or RecursionError; _CutOffError if it is truncated."""
    decoded = _decoded(_repair_text(text) if repair else text)
    try:
        value, end = _TOLERANT.raw_decode(decoded)
    except json.JSONDecodeError as error:
        if error.pos >= len(decoded.rstrip()) or error.msg.startswith("Unterminated string"):
            raise _CutOffError from None
        raise
    try:
        msgspec.json.decode(decoded[:end])
        repaired = repair or decoded[:end].encode() != text[:end]
    except UNREADABLE:
        repaired = True
    return ReadEvent(lenient(value), repaired, decoded[end:].encode())


def _decoded(text: bytes) -> str:
    decoded = text.decode("utf-8", "replace")
    return _LONE_SURROGATE.sub(r"\\ufffd", decoded) if "\\u" in decoded else decoded


def _is_garbage(text: bytes) -> bool:
    return bool(text.strip(_BETWEEN.encode()))


def _repair_text(text: bytes) -> bytes:
    """Escapes raw quotes and backslashes inside strings; writes null for missing values, nan and inf."""
    return _TOKEN.sub(lambda m: b"null" if m[1] is None else b'"' + _escaped(m[1]) + m[2], _repair_names(text))


def _repair_names(text: bytes) -> bytes:
    """Escapes quotes in names: a name ends where the next key of the event begins."""
    parts, at = [], 0
    while (begins := _NAME_BEGINS.search(text, at)) and (ends := _NAME_ENDS.search(text, begins.end())):
        parts += [text[at : begins.end()], _escaped(text[begins.end() : ends.start()])]
        at = ends.start()
    return b"".join([*parts, text[at:]])


def _escaped(text: bytes) -> bytes:
    return _ESCAPE_OR_BARE.sub(lambda m: m[0] if len(m[0]) > 1 else b"\\" + m[0], text)
