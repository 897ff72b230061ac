"""The wire format of protocol buffers, in which Perfetto traces are written: the fields of many messages at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.tables.schema import I8, Mask

Bytes = npt.NDArray[np.uint8]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_PACKET_KEY = b"\x0a"  # of the packets of a trace
_PADDING = b"\0" * 32  # behind the bytes, so that no number is read beyond them
_MORE = 128  # the bit of a byte that another one follows
_MOST_DIGITS, _MASK = 10, (1 << 64) - 1  # of 7 bits, in a number of 64 bits
_KEYS = 1 << 32  # of fields: beyond the largest
_FEW = 16  # messages: fewer are read one after the other


class Packed(Struct):
    """Bytes that messages are read from; `damaged` counts the messages that could not be read to their ends."""

    bytes: Bytes
    damaged: int = 0


class Fields(Struct, frozen=True):
    """The fields of messages, those of one message in their order. Arrays of shape (fields,)."""

    data: Packed
    message: I8  # which of the messages
    number: I8
    wire: I8
    value: I8  # of a number, as its 64 bits; of a text or a message its size
    begin: I8  # of a text or a message: its bytes in `data`
    end: I8

    def __len__(self) -> int:
        return len(self.message)

    def of(self, number: int, wire: int = LENGTH) -> Fields:
        """The fields with this number."""
        return self.take(np.flatnonzero((self.number == number) & (self.wire == wire)))

    def take(self, rows: I8) -> Fields:
        columns = (self.message, self.number, self.wire, self.value, self.begin, self.end)
        return Fields(self.data, *(column[rows] for column in columns))

    def numbers(self, number: int, count: int, missing: int = -1) -> I8:
        """The value of a field of each of `count` messages."""
        out = np.full(count, missing, np.int64)
        found = self.of(number, VARINT)
        out[found.message] = found.value
        return out

    def inside(self) -> Fields:
        """The fields of the messages that these fields hold: `message` is the position among these."""
        return read_fields(self.data, self.begin, self.end)

    def text(self, row: int) -> bytes:
        return self.data.bytes[self.begin[row] : self.end[row]].tobytes()

    def equal(self, text: bytes) -> Mask:
        """Which of these fields hold this text."""
        out: Mask = self.end - self.begin == len(text)
        rows = np.flatnonzero(out)
        found = self.data.bytes[self.begin[rows][:, None] + np.arange(len(text))]
        out[rows] = (found == np.frombuffer(text, np.uint8)).all(axis=1)
        return out


def is_perfetto(start: bytes) -> bool:
    """Whether a file with these first bytes is a Perfetto trace: a packet, and the key of another behind it."""
    begins, ends = packets_of(start)
    if not begins:
        return False
    covered = max((field[-1] for field in fields_of(start, begins[0], ends[0])), default=0)
    return covered == ends[0] and start[ends[0] : ends[0] + 1] in (_PACKET_KEY, b"")


def packed(data: bytes) -> Packed:
    return Packed(np.frombuffer(data + _PADDING, np.uint8))


def packets_of(data: bytes) -> tuple[list[int], list[int]]:
    """Where the complete packets at the start of a trace begin and end."""
    begins: list[int] = []
    ends: list[int] = []
    at = 0
    while at + 1 < len(data) and data[at] == _PACKET_KEY[0]:
        size, first = (data[at + 1], at + 2) if data[at + 1] < _MORE else _varint(data, at + 1)
        at = first + size
        if at > len(data):
            break
        begins.append(first)
        ends.append(at)
    return begins, ends


def read_fields(data: Packed, begin: I8, end: I8) -> Fields:
    """The fields of the messages at these places. Of a damaged message, those before its first damaged field."""
    parts: list[list[I8]] = []
    message, at = np.arange(len(begin)), begin
    while len(message := message[is_open := at < end[message]]):
        at = at[is_open]
        if len(message) < _FEW:
            parts.append(_one_by_one(data, message, at, end[message]))
            break
        key, at = _varints(data.bytes, at)
        at = np.minimum(at, len(data.bytes) - len(_PADDING))
        wire = key & 7
        value, after = _varints(data.bytes, at)
        is_text, fixed = wire == LENGTH, np.select([wire == FIXED64, wire == FIXED32], [8, 4])
        if fixed.any():
            value = np.where(fixed > 0, _fixed(data.bytes, at, fixed), value)
            after = np.where(fixed > 0, at + fixed, after)
        size, room = np.where(is_text, value, 0), end[message] - after
        valid = (key >= 8) & (key < _KEYS) & (is_text | (fixed > 0) | (wire == VARINT))
        valid &= (room >= 0) & (size >= 0) & (size <= room)
        data.damaged += int(len(valid) - valid.sum())
        columns = (message, key >> 3, wire, value, np.where(is_text, after, at), after + size)
        parts.append([column[valid] for column in columns])
        message, at = message[valid], (after + size)[valid]
    joined = [np.concatenate(column) for column in zip(*parts, strict=True)] or [np.empty(0, np.int64)] * 6
    order = np.argsort(joined[0], kind="stable")
    return Fields(data, *(column[order] for column in joined))


def _one_by_one(data: Packed, messages: I8, begin: I8, end: I8) -> list[I8]:
    """The columns of the fields of a few messages: reading all at once has no advantage."""
    rows = []
    for message, at, last in zip(messages.tolist(), begin.tolist(), end.tolist(), strict=True):
        for one in fields_of(data.bytes.data, at, last):
            rows.append((message, *one))
            at = one[-1]
        data.damaged += at < last
    return list(np.array(rows, np.int64).reshape(-1, 6).T)


def fields_of(data: bytes | memoryview, at: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Number, wire type, value, and begin and end of the bytes of each field of one message. Stops before the first
    that is damaged, or not complete.
    """
    while at < end:
        key, at = _varint(data, at) if data[at] >= _MORE else (data[at], at + 1)
        number, wire, value = key >> 3, key & 7, 0
        first = at
        if wire == VARINT:
            value, at = _varint(data, at)
            value -= (value >> 63) << 64
        elif wire == LENGTH:
            value, first = _varint(data, at)
            at = first + value
        elif wire in (FIXED64, FIXED32):
            at += 8 if wire == FIXED64 else 4
            value = int.from_bytes(data[first:at], "little", signed=wire == FIXED64)
        else:
            return
        if at > end or not 8 <= key < _KEYS:
            return
        yield number, wire, value, first, at


def _varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = shift = 0
    for byte in data[at : at + _MOST_DIGITS]:
        at += 1
        if byte < _MORE:
            return (value | byte << shift) & _MASK, at
        value |= (byte & 127) << shift
        shift += 7
    return 0, len(data) + 1  # the data end, or no number is that long


def _varints(data: Bytes, at: I8) -> tuple[I8, I8]:
    """The numbers at these places, and where each ends."""
    byte = data[at]
    value, after = (byte & 127).astype(np.uint64), at + 1
    rows = np.flatnonzero(byte >= _MORE)
    for digit in range(1, _MOST_DIGITS):
        if not len(rows):
            break
        byte = data[after[rows]]
        value[rows] |= (byte & 127).astype(np.uint64) << np.uint64(7 * digit)
        after[rows] += 1
        rows = rows[byte >= _MORE]
    after[rows] = len(data) + 1
    return value.view(np.int64), after


def _fixed(data: Bytes, at: I8, size: I8) -> I8:
    """The bits of numbers of 8 bytes, else of 4."""
    bits = np.ascontiguousarray(data[at[:, None] + np.arange(8)]).view("<i8").reshape(-1)
    return np.where(size == 8, bits, bits & 0xFFFFFFFF)
