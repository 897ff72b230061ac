"""The entries of a snapshot's history, read in columns: a file has millions of opcodes, and all entries look alike.

A layout is taken from one entry that the reader has executed: its keys, in order. From then on every place where such
an entry may begin is decoded at once, one key after the other. An entry counts only if its end is where the next one
begins.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.tables.schema import I8

ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, SNAPSHOT, OOM = range(9)
_ACTIONS = {
    "alloc": ALLOC,
    "free_requested": FREE_REQUESTED,
    "free_completed": FREE_COMPLETED,
    "segment_alloc": SEGMENT_ALLOC,
    "segment_free": SEGMENT_FREE,
    "segment_map": SEGMENT_MAP,
    "segment_unmap": SEGMENT_UNMAP,
    "snapshot": SNAPSHOT,
    "oom": OOM,
}

NUMBERS = ("addr", "size", "time_us")
PAD = 64  # bytes after the data that may be looked at
_KEY = re.compile(rb"h.|j.{4}", re.DOTALL)
_LIST = re.compile(rb"\]\x94(?:\((?:h.|j.{4})+e|(?:h.|j.{4})a)?", re.DOTALL)
_REFERENCES = re.compile(rb"h(.)|j(.{4})", re.DOTALL)
_BEGIN = b"}\x94("
_BINGET, _LONG_BINGET, _TEXT, _LONG1, _LIST_OPCODE, _END = ord("h"), ord("j"), 0x8C, 0x8A, ord("]"), ord("u")
_TUPLE2, _MEMOIZE = 0x86, 0x94

# Bytes of the number behind each opcode, and of the whole value. LONG1 and texts state their own length.
_NUMBER_BYTES, _VALUE_BYTES = np.zeros(256, np.int64), np.zeros(256, np.int64)
for _opcode, _bytes in ((b"K", 1), (b"M", 2), (b"J", 4), (b"h", 1), (b"j", 4)):
    _NUMBER_BYTES[ord(_opcode)] = _bytes
    _VALUE_BYTES[ord(_opcode)] = 1 + _bytes
for _opcode in (b"N", b"\x88", b"\x89"):
    _VALUE_BYTES[ord(_opcode)] = 1

_Mask = npt.NDArray[np.bool_]


class Entries(Struct, frozen=True):
    """Rows of the history in columns, in the order of the file. Arrays have shape (rows,); missing values are -1.

    `action` is one of the constants above; times in µs since 1970. The `address` of an OOM is what the device had free.
    """

    action: npt.NDArray[np.int8]
    address: I8
    size: I8
    time_us: I8
    stack: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.size)

    def put(self, row: int, part: Entries) -> None:
        """Copies the rows of another table to this row and the following."""
        for name in self.__struct_fields__:
            getattr(self, name)[row : row + len(part)] = getattr(part, name)

    def where(self, chosen: _Mask) -> Entries:
        """The rows that `chosen` (shape (rows,)) marks."""
        address, size, time_us = (column[chosen] for column in (self.address, self.size, self.time_us))
        return Entries(self.action[chosen], address, size, time_us, self.stack[chosen])


class Layout(Struct, frozen=True):
    """The keys of an entry, each as the opcodes that name it. `pairs` are the keys whose value is a pair of numbers."""

    names: list[str]
    keys: list[bytes]
    pairs: frozenset[str]


class Decoded(Struct, frozen=True):
    """What may be entries, by where they begin. Arrays have shape (candidates,); `follows` says whether the next one
    begins where this one ends.

    `frames_at` is where the list of frames is, -1 if there is none; `new_list` whether it is in the entry, and else
    `frames_get` is its place in the memo. An entry puts `memoized` values into the memo, the list as number
    `list_memo`.
    """

    start: I8
    end: I8
    follows: _Mask
    action_get: I8
    numbers: dict[str, I8]
    memoized: I8
    frames_at: I8
    frames_get: I8
    new_list: _Mask
    list_memo: I8


def find_layout(data: bytes, entry: dict[Any, Any]) -> Layout | None:
    """The layout of the entry that `data` holds, from its EMPTY_DICT to its SETITEMS; None if it has no simple one."""
    if not data.startswith(_BEGIN) or not {"action", "addr", "size"} <= entry.keys():
        return None
    names, keys, pairs, at = [], [], set(), len(_BEGIN)
    for name, value in entry.items():
        key = _KEY.match(data, at)
        if key is None or not isinstance(name, str):
            return None
        names.append(name)
        keys.append(key[0])
        at = key.end()
        if name == "frames":
            list_ = _LIST.match(data, at) or _KEY.match(data, at)
            if list_ is None:
                return None
            at = list_.end()
            continue
        if data[at : at + 1] in (b"h", b"j"):
            at = _KEY.match(data, at).end()  # type: ignore[union-attr]
        elif isinstance(value, tuple):
            pairs.add(name)
            at = _after_value(data, _after_value(data, at)) + 2
        else:
            at = _after_value(data, at)
    whole = data[at : at + 1] == b"u" and len(data) == at + 1 and ("frames" not in names or names[-1] == "frames")
    return Layout(names, keys, frozenset(pairs)) if whole else None


def decode(data: bytes, layout: Layout) -> Decoded:
    """Decodes whatever may be an entry in `data`."""
    first = _BEGIN + layout.keys[0]
    start = np.array([match.start() for match in re.finditer(re.escape(first), data)], np.int64)
    cursor = _Cursor(data, start + len(_BEGIN))
    count = len(start)
    memoized, nowhere = np.ones(count, np.int64), np.full(count, -1, np.int64)
    numbers: dict[str, I8] = {}
    action = nowhere
    for name, key in zip(layout.names, layout.keys, strict=True):
        if name == "frames":
            break
        cursor.expect(key)
        if name == "action":
            action = cursor.reference()
        elif name in NUMBERS:
            numbers[name] = cursor.number()
        elif name in layout.pairs:
            memoized += cursor.pair()
        else:
            memoized += cursor.skip()
    next_start = np.append(start[1:], -1)
    frames_at, frames_get, new_list = nowhere, nowhere, np.zeros(count, bool)
    list_memo = memoized.copy()
    if layout.names[-1] == "frames":
        bare = cursor.opcode() == _END
        cursor.expect(layout.keys[-1], unless=bare)
        frames_at = np.where(bare, -1, cursor.at)
        new_list = ~bare & (cursor.opcode() == _LIST_OPCODE)
        frames_get = cursor.reference(unless=bare | new_list)
        cursor.at = np.where(new_list, next_start - 1, cursor.at)
        memoized = memoized + new_list
    cursor.good &= cursor.opcode() == _END
    end = cursor.at + 1
    follows = cursor.good & (end == next_start)
    return Decoded(start, end, follows, action, numbers, memoized, frames_at, frames_get, new_list, list_memo)


def is_list(body: bytes) -> bool:
    """Whether these opcodes make a list of frames that are all in the memo."""
    return _LIST.fullmatch(body) is not None


def references(body: bytes) -> list[int]:
    """The places in the memo that a new list of frames refers to."""
    return [int.from_bytes(short or long, "little") for short, long in _REFERENCES.findall(body, 2)]


def action_code(action: Any) -> int:
    return _ACTIONS.get(action, -1) if isinstance(action, str) else -1


def _after_value(data: bytes, at: int) -> int:
    """Where a number, a constant or a short text in the memo ends; for other values a place where no key is."""
    opcode, own = data[at : at + 1], data[at + 1 : at + 2]
    if opcode and own and opcode[0] in (_LONG1, _TEXT):
        return at + 2 + own[0] + (opcode[0] == _TEXT)
    return at + int(_VALUE_BYTES[opcode[0]]) if opcode else at


class _Cursor:
    """A place in each candidate, which moves over one key or value at a time. `good`: nothing unexpected so far."""

    def __init__(self, data: bytes, at: I8) -> None:
        padded = data + bytes(PAD)
        self._words = np.ndarray((len(data) + PAD - 8,), "<u8", padded, strides=(1,))
        self._last = len(data)
        self.at = at
        self.good = np.ones(len(at), bool)

    def opcode(self) -> I8:
        return np.asarray(self._word(0) & np.uint64(0xFF), np.int64)

    def expect(self, key: bytes, unless: _Mask | None = None) -> None:
        """Moves over a key."""
        mask = np.uint64((1 << 8 * len(key)) - 1)
        same = (self._word(0) & mask) == np.uint64(int.from_bytes(key, "little"))
        self.good &= same if unless is None else same | unless
        self.at = self.at + (len(key) if unless is None else np.where(unless, 0, len(key)))

    def number(self) -> I8:
        """Moves over an integer and returns it."""
        opcode = self.opcode()
        long = opcode == _LONG1
        head = np.where(long, 2, 1)
        count = np.where(
            long, (self._word(0) >> np.uint64(8) & np.uint64(0xFF)).astype(np.int64), _NUMBER_BYTES[opcode]
        )
        self.good &= (count > 0) & (count <= 8) & (opcode != _BINGET) & (opcode != _LONG_BINGET)
        shift = 64 - 8 * np.clip(count, 1, 8)
        word = self._words[np.minimum(self.at + head, self._last)]
        signed = long | (opcode == ord("J"))
        value = np.where(
            signed,
            word.view(np.int64) << shift >> shift,
            (word << shift.view(np.uint64) >> shift.view(np.uint64)).view(np.int64),
        )
        self.at = self.at + head + count
        return np.asarray(value, np.int64)

    def reference(self, unless: _Mask | None = None) -> I8:
        """Moves over a BINGET or LONG_BINGET and returns the place in the memo; -1 where there is none to expect."""
        word = self._word(0)
        opcode = (word & np.uint64(0xFF)).astype(np.int64)
        short, long = opcode == _BINGET, opcode == _LONG_BINGET
        place = np.where(short, word >> np.uint64(8) & np.uint64(0xFF), word >> np.uint64(8) & np.uint64(0xFFFFFFFF))
        skipped = np.zeros(len(word), bool) if unless is None else unless
        self.good &= short | long | skipped
        self.at = self.at + np.where(skipped, 0, np.where(short, 2, 5))
        return np.asarray(np.where(skipped, -1, place.astype(np.int64)))

    def skip(self) -> I8:
        """Moves over a value that nobody reads; returns how many values it puts into the memo."""
        word = self._word(0)
        opcode = (word & np.uint64(0xFF)).astype(np.int64)
        own = (word >> np.uint64(8) & np.uint64(0xFF)).astype(np.int64)
        text, long = opcode == _TEXT, opcode == _LONG1
        length = np.where(text, 3 + own, np.where(long, 2 + own, _VALUE_BYTES[opcode]))
        self.good &= length > 0
        self.at = self.at + length
        before = (self._words[np.clip(self.at - 1, 0, self._last)] & np.uint64(0xFF)) == _MEMOIZE
        self.good &= before | ~text
        return np.asarray(text, np.int64)

    def pair(self) -> I8:
        """Moves over a pair of numbers, or a reference to one; returns how many values it puts into the memo."""
        opcode = self.opcode()
        known = (opcode == _BINGET) | (opcode == _LONG_BINGET)
        at, good = self.at, self.good.copy()
        self.number()
        self.number()
        word = self._word(0)
        end = (word & np.uint64(0xFFFF)) == np.uint64(_TUPLE2 | _MEMOIZE << 8)
        self.good = np.where(known, good, self.good & end)
        self.at = np.where(known, at + _VALUE_BYTES[opcode], self.at + 2)
        return np.asarray(~known, np.int64)

    def _word(self, offset: int) -> npt.NDArray[np.uint64]:
        return np.asarray(self._words[np.minimum(self.at + offset, self._last)], np.uint64)
