"""Trace text to decoded events: cut at event borders, decode chunk by chunk, recover what is damaged.

The cut needs no trust in the file's layout. A candidate border is the right-most `{` after `,` after `}`; a chunk
that starts at a true event and decodes as an array can only end at a true border. When it does not decode, the
position of the error tells which: at the chunk's very end the cut was wrong (the text is carried over and grows), in
the middle the file is damaged (the chunk is recovered event by event).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import msgspec

from traceopt.analyzer.events import Event, decode_events, lenient
from traceopt.analyzer.recovery import recover

_WHITESPACE = b" \t\r\n"
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BARE_ARRAY = re.compile(rb"\s*\[\s*(?:\{|\])")
_ERROR_BYTE = re.compile(r"\(byte (\d+)\)")
_ARRAY_END = re.compile(rb"(?:\}|^)\s*,?\s*\](?=\s*(?:\}|,\s*\"|$))")
_ARRAY_END_TRIES = 100
_HEAD_LIMIT_BYTES = 64 << 20  # metadata before the events; the largest seen is 0.2 MB
_CARRY_LIMIT_BYTES = 16 << 20  # an event larger than this is taken for damage


class NotATraceError(ValueError):
    """The text holds no list of trace events. The message says what it holds."""


@dataclass(slots=True)
class EventStream:
    """Iterates over the lists of events in blocks of trace text.

    After the iteration: `head` and `tail` are the texts before and after the events (a JSON object without its
    `traceEvents`), `lost` counts events that could not be recovered, `repaired` those that could, and `truncated`
    says whether the text ends inside the events.
    """

    blocks: Iterable[bytes]
    head: bytes = b""
    tail: bytes = b""
    lost: int = 0
    repaired: int = 0
    truncated: bool = False

    def __iter__(self) -> Iterator[list[Event]]:
        blocks = iter(self.blocks)
        carry = b""
        block: bytes | None = self._find_events(blocks)
        while block is not None:
            border = _last_border(block)
            events = None
            if border is not None:
                end, start = border
                text = b"".join((b"[", carry, memoryview(block)[:end], b"]"))
                events = self._decode(text)
            if events is None:
                carry += block
                if len(carry) > _CARRY_LIMIT_BYTES and (border := _last_border(carry)) is not None:
                    yield self._recover(carry[: border[0]])
                    carry = carry[border[1] :]
            else:
                carry = block[start:]
                yield events
            block = next(blocks, None)
        yield self._finish(carry)

    def _find_events(self, blocks: Iterator[bytes]) -> bytes:
        """Reads up to the first event; raises NotATraceError."""
        text = b""
        for block in blocks:
            text += block
            if bare := _BARE_ARRAY.match(text):
                return text[bare.end() - 1 :]
            if found := _EVENTS_KEY.search(text):
                self.head = text[: found.end()] + b"]}"
                return text[found.end() :]
            if len(text) > _HEAD_LIMIT_BYTES:
                break
        if not text.strip():
            raise NotATraceError("it is empty")
        raise NotATraceError("it has no list of traceEvents")

    def _decode(self, text: bytes) -> list[Event] | None:
        """The events of a JSON array, or None when the array was cut at a wrong place."""
        try:
            return decode_events(text)  # type: ignore[return-value]
        except msgspec.ValidationError:
            try:
                raws = msgspec.json.decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return self._recover(text[1:-1])
            return self._coerced(raws)
        except UnicodeDecodeError:
            return self._recover(text[1:-1])
        except msgspec.DecodeError as error:
            position = _ERROR_BYTE.search(str(error))
            if position is None or int(position[1]) >= len(text) - 1:
                return None
            return self._recover(text[1:-1])

    def _coerced(self, raws: list[object]) -> list[Event]:
        events = []
        for raw in raws:
            event = lenient(raw)
            if event is not None:
                events.append(event)
            elif not (isinstance(raw, dict) and "ph" in raw):
                self.lost += 1
        return events

    def _recover(self, text: bytes) -> list[Event]:
        found = recover(text)
        self.lost += found.lost
        self.repaired += found.repaired
        return found.events

    def _finish(self, carry: bytes) -> list[Event]:
        """The last events and what follows them."""
        end = _end_of_array(carry)
        if end is None:
            self.truncated = True
            return self._recover(carry)
        self.tail = carry[end + 1 :]
        text = b"[" + carry[:end] + b"]"
        events = self._decode(text)
        return self._recover(carry[:end]) if events is None else events


def _last_border(text: bytes) -> tuple[int, int] | None:
    """Where the last complete event ends and the next begins: right-most `}` `,` `{`."""
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
    """Position of the `]` that closes the events, or None when the text is cut off before it.

    Of the candidates it is the first whose left side decodes (a `]` inside a string or an argument does not), else,
    where the events are damaged, the first whose right side can end a trace.
    """
    candidates = [match.end() - 1 for match in islice(_ARRAY_END.finditer(text), _ARRAY_END_TRIES)]
    for position in candidates:
        if _decodes(b"[" + text[:position] + b"]"):
            return position
    for position in candidates:
        if not text[position + 1 :].strip() or _decodes(b'{"":0' + text[position + 1 :]):
            return position
    return None


def _decodes(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
