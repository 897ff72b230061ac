"""Damaged trace text: every event that can be read is kept, every one that cannot is counted.

Kineto has written raw quotes, backslashes, control characters, bytes that are no UTF-8, NaN, and files cut off in the
middle of an event. Text is split where an event seems to begin, and each piece is decoded alone.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from traceopt.analyzer.events import Event, lenient

# An event begins with one of these keys in every writer seen (Kineto: "ph"; json.dumps of it: any of them).
_EVENT_START = re.compile(rb'(?:(?<=[\[,\s])|^)\{\s*"(?:ph|cat|name|pid|tid|ts)"\s*:')
_STRING_VALUE = re.compile(
    rb'("(?:name|cat)"\s*:\s*")(.*?)("\s*,\s*"(?:ph|cat|name|pid|tid|ts|dur|args|id|s)"\s*:)', re.S
)
_BAD_ESCAPE = re.compile(rb'\\(?!["\\/bfnrtu])')
_STRICT = json.JSONDecoder()
_TOLERANT = json.JSONDecoder(strict=False)  # control characters inside strings
_LOOK_AHEAD = 3  # pieces to join when a seeming start lay inside an argument


@dataclass(slots=True)
class Recovered:
    """`repaired` of the `events` were read only after their text was mended; `lost` could not be read."""

    events: list[Event] = field(default_factory=list)
    repaired: int = 0
    lost: int = 0


def recover(text: bytes) -> Recovered:
    """Reads the events of a damaged array's inside, one by one."""
    found = Recovered()
    starts = [match.start() for match in _EVENT_START.finditer(text)]
    if not starts:
        found.lost = 1 if text.strip(b" \t\r\n,]}") else 0
        return found
    starts.append(len(text))
    piece = 0
    while piece < len(starts) - 1:
        for end in range(piece + 1, min(piece + 1 + _LOOK_AHEAD, len(starts))):
            raw, repaired = _read(text[starts[piece] : starts[end]])
            if raw is not None:
                break
        if raw is None:
            found.lost += 1
            piece += 1
            continue
        event = lenient(raw)
        if event is not None:
            found.events.append(event)
            found.repaired += repaired
        piece = end
    return found


def _read(piece: bytes) -> tuple[object, bool]:
    """One event's JSON value and whether its text had to be mended; (None, False) when it cannot be read.

    raw_decode, because what follows a complete event (the array's end, garbage) does not matter.
    """
    piece = piece.rstrip(b" \t\r\n,")
    try:
        return _STRICT.raw_decode(piece.decode())[0], False
    except (ValueError, RecursionError):
        pass
    try:
        return _TOLERANT.raw_decode(_mended(piece).decode("utf-8", "backslashreplace"))[0], True
    except (ValueError, RecursionError):
        return None, False


def _mended(piece: bytes) -> bytes:
    """Escapes raw quotes inside names and backslashes that start no escape."""
    piece = _STRING_VALUE.sub(lambda m: m[1] + re.sub(rb'(?<!\\)"', rb"\\\"", m[2]) + m[3], piece)
    return _BAD_ESCAPE.sub(rb"\\\\", piece)
