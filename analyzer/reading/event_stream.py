"""Trace text to decoded events: split the text at event borders, decode chunk by chunk, recover damaged chunks.

Splitting does not depend on the layout of the file. A candidate border is the right-most `{` after `,` after `}`. A
chunk that starts at a real event and decodes as an array can only end at a real border. If it does not decode, the flaw
tells why: the array is still open at the end of the chunk (wrong border: carry the text over and let it grow), it
closes early (the events end here), or the text is broken in the middle (recover it event by event).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Literal

import msgspec
from msgspec import Struct

from traceopt.analyzer.reading.damaged_events import (
    PATIENCE,
    UNREADABLE,
    Recovered,
    is_utf8,
    read_event,
    read_object,
    recover,
)
from traceopt.analyzer.reading.event_types import Event, decode_events
from traceopt.analyzer.tables.trace import CUT_OFF

_WHITESPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_KEY_BYTES = 1 << 10  # overlap of searches, because the key may span two blocks
_BARE_ARRAY = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*(?:\{|\])")
_ERROR_BYTE = re.compile(r"\(byte (\d+)\)")
_ARRAY_END = re.compile(rb'\}\s*(?:,\s*)?\](?=\s*(?:$|\}\s*$|,\s*"))')
_ARRAY_END_TRIES = 100
_META_LIMIT_BYTES = 16 << 20  # limit for the text before or after the events; the largest seen is 0.2 MB
EVENT_LIMIT_BYTES = 4 << 20  # a larger event is treated as damage

_check_syntax = msgspec.json.Decoder(msgspec.Raw).decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode


class NotATraceError(ValueError):
    """The text has no list of trace events. `start` is the text, or as much as was read of it."""

    def __init__(self, start: bytes) -> None:
        super().__init__("no list of trace events")
        self.start = start


class EventStream(Struct):
    """Iterates over the lists of events in blocks of trace text. `decode` reads a JSON array of events; events that
    have to be recovered or repaired are always of type Event.

    After the iteration: `header` is the JSON object around the events, as far as it could be read; `lost` counts events
    that could not be recovered, in `unread_bytes` of text, `repaired` those that could only be read after a repair
    (including the object before them); `damage` describes what is wrong with the text around them, or is None.
    """

    blocks: Iterable[bytes]
    decode: Callable[[bytes], list[Any]] = decode_events
    lost: int = 0
    repaired: int = 0
    unread_bytes: int = 0
    damage: str | None = None
    header: dict[str, Any] = {}
    _head: bytes = b""  # the document before the events, closed after them; empty for a bare array
    _tail: bytes | None = None  # the text after the events, once they have ended

    def __iter__(self) -> Iterator[list[Event]]:
        blocks = iter(self.blocks)
        yield from self._decoded(b"", self._find_events(blocks), blocks)

    def _decoded(self, carry: bytes, block: bytes | None, blocks: Iterator[bytes]) -> Iterator[list[Event]]:
        while block is not None and self._tail is None:
            events, carry = self._next(carry, block)
            yield events
            block = next(blocks, None)
        if self._tail is None:
            yield self._last(carry)
        tail = bytearray(self._tail or b"")
        while block is not None:  # read to the end, to notice a damaged stream
            if len(tail) < _META_LIMIT_BYTES:
                tail += block
            block = next(blocks, None)
        self._tail = bytes(tail)
        complete = _flaw(b'{"":0' + self._tail)[0] == "none" if self._head else not tail.strip()
        if not complete and self.damage is None:
            self.damage = "the text after the events is truncated or damaged"
        if self._head:
            self._read_header(self._tail)

    def _read_header(self, tail: bytes) -> None:
        before = read_object(self._head)
        self.header = {**before, **read_object(b'{"":0' + (tail or b"}"))}
        self.header.pop("traceEvents", None)
        self.header.pop("", None)
        if not before:
            self.damage = "; ".join(filter(None, ("the text before the events is damaged", self.damage)))
        elif _flaw(self._head)[0] != "none" or not is_utf8(self._head):
            self.repaired += 1

    def _find_events(self, blocks: Iterator[bytes]) -> bytes:
        """Reads up to the first event. Raises NotATraceError."""
        text = b""
        for block in blocks:
            searched = max(0, len(text) - _KEY_BYTES)
            text = text + block if text else block
            if bare := _BARE_ARRAY.match(text):
                return text[bare.end() - 1 :]
            if found := _EVENTS_KEY.search(text, searched):
                self._head = text[: found.end()].removeprefix(_BOM).lstrip() + b"]}"
                return text[found.end() :]
            if len(text) > _META_LIMIT_BYTES:
                break
        raise NotATraceError(text)

    def _next(self, carry: bytes, block: bytes) -> tuple[list[Event], bytes]:
        """The events completed by one more block, and the text to carry over."""
        border = last_border(block)
        if border is None:
            text = carry + block
            return ([], text) if len(text) <= EVENT_LIMIT_BYTES else self._examined(text, len(text), len(text))
        end, start = border
        array = b"".join((b"[", carry, memoryview(block)[:end], b"]"))
        try:
            if is_utf8(array):
                return self.decode(array), block[start:]
        except UNREADABLE:
            pass
        return self._examined(carry + block, len(carry) + end, len(carry) + start)

    def _examined(self, text: bytes, end: int, start: int) -> tuple[list[Event], bytes]:
        """Like `_next`, for text that did not decode up to `end`; the next event begins at `start`."""
        array = b"[" + text[:end] + b"]"
        flaw, position = _flaw(array)
        if flaw == "none":
            return self._readable(array), text[start:]
        if flaw == "open" and len(text) <= EVENT_LIMIT_BYTES:
            return [], text
        if flaw == "ended" and self._may_follow(text[position - 1 :]):
            self._tail = text[position - 1 :]
            return self._readable(array[:position]), b""
        return self._recovered(text, end, start)

    def _last(self, text: bytes) -> list[Event]:
        """The remaining events; also finds the text after them."""
        array = b"[" + text
        flaw, position = _flaw(array)
        if flaw == "none":
            self._tail = b""
            return self._readable(array)
        if flaw == "ended" and (self._may_follow(text[position - 1 :]) or b'"ph"' not in text[position - 1 :]):
            self._tail = text[position - 1 :]
            return self._readable(array[:position])
        end = None if flaw == "open" else _end_of_array(text)
        if end is None:
            self.damage = CUT_OFF
        else:
            self._tail = text[end + 1 :]
        return self._recover(text[:end], final=True).events

    def _may_follow(self, text: bytes) -> bool:
        """Whether the text after a closed array ends the document, so that the `]` was not a stray one among the
        events.

        The document may be followed by anything but its continuation: another document, or the end of an older file.
        """
        document = (b'{"":0' if self._head else b"[]") + text
        flaw, position = _flaw(document)
        if b'"ph"' in document[:position]:
            return False
        return flaw in ("none", "open") or (flaw == "ended" and document[position:].lstrip()[:1] not in b",}]")

    def _readable(self, array: bytes) -> list[Event]:
        """The events of well-formed JSON, which may contain values of unexpected types or invalid UTF-8."""
        try:
            if is_utf8(array):
                return self.decode(array)
        except UNREADABLE:
            pass
        events = []
        for element in _elements(array):
            reading = read_event(element)
            if reading is None or reading.event is None:
                self.lost += 1
            else:
                events.append(reading.event)
                self.repaired += reading.repaired
        return events

    def _recovered(self, text: bytes, end: int, start: int) -> tuple[list[Event], bytes]:
        """Like `_examined`, for broken text."""
        found = self._recover(text[:end], final=False)
        if found.rest == end:
            return found.events, text[start:]
        if len(text) - found.rest <= EVENT_LIMIT_BYTES:
            return found.events, text[found.rest :]
        self.lost += 1
        self.unread_bytes += start - found.rest
        return found.events, text[start:]

    def _recover(self, text: bytes, final: bool) -> Recovered:
        found = recover(text, final, PATIENCE + self.repaired - self.lost)
        self.lost += found.lost
        self.repaired += found.repaired
        self.unread_bytes += found.unread_bytes
        return found


def _flaw(text: bytes) -> tuple[Literal["none", "open", "ended", "broken"], int]:
    """Why a text is not exactly one JSON value, and where: "open" (unfinished), "ended" (closes early) or "broken"."""
    try:
        _check_syntax(text)
    except RecursionError:
        return "broken", 0
    except msgspec.DecodeError as error:
        message = str(error)
        found = _ERROR_BYTE.search(message)
        if found is None:
            return "open", len(text)
        position = int(found[1])
        if "trailing characters" in message:  # msgspec reports the byte after the first trailing one
            return "ended", len(text[: position - 1].rstrip())
        return ("open" if position >= len(text) - 1 else "broken"), position
    return "none", len(text)


def last_border(text: bytes) -> tuple[int, int] | None:
    """Where the last complete event ends and the next one begins: the right-most `}` `,` `{`."""
    opening = len(text)
    while True:
        opening = text.rfind(b"{", 0, opening)
        if opening <= 0:
            return None
        comma = opening - 1
        while comma >= 0 and text[comma] in _WHITESPACE:
            comma -= 1
        if comma < 0 or text[comma] != ord(","):
            continue
        closing = comma - 1
        while closing >= 0 and text[closing] in _WHITESPACE:
            closing -= 1
        if closing >= 0 and text[closing] == ord("}"):
            return closing + 1, opening


def _end_of_array(text: bytes) -> int | None:
    """Position of the first `]` after which the document ends properly; None if there is none. Events may be
    damaged.
    """
    for match in islice(_ARRAY_END.finditer(text), _ARRAY_END_TRIES):
        if not text[match.end() :].strip() or _flaw(b'{"":0' + text[match.end() :])[0] == "none":
            return match.end() - 1
    return None
