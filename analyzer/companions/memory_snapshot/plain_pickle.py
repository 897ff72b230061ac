"""Executes the opcodes of a pickle that build plain data, and no others. Nothing is imported or called.

`pickletools` documents the opcodes. The history of a snapshot is read in columns (`entry_columns.py`): a dict for each
of its entries would take several times the memory of the file. Dumps of the flight recorder are small and have no
such columns; `restricted_pickle.py` reads them ten times as fast.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from typing import IO, Any, NoReturn

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.companions.memory_snapshot.entry_columns import (
    NUMBERS,
    Decoded,
    Entries,
    Layout,
    action_code,
    decode,
    find_layout,
    is_list,
    references,
)
from traceopt.analyzer.tables.schema import I8
from traceopt.errors import InputError

_CHUNK = 1 << 20
_MARGIN = 1 << 16  # bytes that are always in the buffer before an opcode is executed
_MOST_LAYOUTS = 32  # each costs a new look at the buffer
_MOST_TEXT = 1 << 20  # bytes of one string
_MOST_NAME = 1024  # characters of a file or function that are kept
_MOST_OBJECTS = 20_000_000  # containers and marks, so that a small file cannot take all memory
_EMPTY_DICT = 0x7D
_NOTHING = -1


class StackId(int):
    """A list of frames, by its number in `PlainPickle.stacks`."""


class PlainPickle:
    """Reads one pickle. After `load()`, `stacks` holds each different list of frames once, as numbers of `frames`
    (file, line, function), innermost first.
    """

    def __init__(self, stream: IO[bytes], label: str, most_bytes: int) -> None:
        self._stream, self._label, self._left = stream, label, most_bytes
        self._data, self._at, self._refill_at, self._ended = b"", 0, 0, False
        self._stack: list[Any] = []
        self._marks: list[int] = []
        # By place in the memo: the number of a stack; _NOTHING: a value that nobody reads; less: a row of `_memo`.
        self._places = array("i")
        self._memo: list[Any] = []
        self._objects = 0
        self._dict_at = -1  # where the newest dict began, if it may show the layout of entries
        self._layout: Layout | None = None
        self._layouts = 0  # different ones so far
        self._decoded: Decoded | None = None  # of `_data`
        self._bodies: dict[bytes, StackId | None] = {}
        self._frame_numbers: dict[tuple[str, int, str], int] = {}
        self._stack_numbers: dict[tuple[int, ...], StackId] = {}
        self._lists: dict[int, StackId] = {}

    @property
    def frames(self) -> list[tuple[str, int, str]]:
        return list(self._frame_numbers)

    @property
    def stacks(self) -> list[tuple[int, ...]]:
        return list(self._stack_numbers)

    def load(self) -> Any:
        """The value of the pickle. Raises InputError, in one line that begins with the label, for anything else."""
        try:
            return self._execute()
        except (IndexError, TypeError, KeyError, ValueError, OverflowError, struct.error, MemoryError) as error:
            self._refuse(f"it is damaged ({type(error).__name__})")

    def stack_of(self, frames: Any) -> StackId | None:
        """The number of a list of frames; None if it is no such list, or empty."""
        if isinstance(frames, StackId):
            return frames
        if not isinstance(frames, list) or not frames:
            return None
        known = self._lists.get(id(frames))
        if known is None:
            known = self._lists[id(frames)] = self._number_of([self._frame(frame) for frame in frames])
        return known

    def _execute(self) -> Any:
        operations = _OPERATIONS
        while True:
            if self._at >= self._refill_at:
                self._refill()
            code = self._data[self._at]
            if code == _EMPTY_DICT and self._layout is not None and self._take_entries():
                continue
            if code == 0x2E:  # STOP
                return self._stack.pop()
            operation = operations.get(code)
            if operation is None:
                self._refuse("it holds objects of classes, or is damaged; only plain data is read")
            self._at += 1
            operation(self)

    def _refuse(self, why: str) -> NoReturn:
        raise InputError(f"{self._label} cannot be read: {why}")

    def _refill(self, wanted: int = 0) -> None:
        """Reads on, so that `wanted` bytes follow, or at least the longest opcode of a fixed length."""
        if self._ended:
            if self._at >= len(self._data):
                self._refuse("it is truncated")
            return
        self._data, self._at, self._dict_at, self._decoded = self._data[self._at :], 0, -1, None
        while not self._ended and len(self._data) <= _MARGIN + wanted:
            read = self._stream.read(max(_CHUNK, wanted))
            self._left -= len(read)
            if self._left < 0:
                self._refuse("it is too large; to read it anyway, set TRACEOPT_MAX_GB to a higher limit")
            self._data += read
            self._ended = not read
        self._refill_at = len(self._data) - (0 if self._ended else _MARGIN)

    def _take(self, count: int) -> bytes:
        while self._at + count > len(self._data) and not self._ended:
            self._refill(count)
        taken = self._data[self._at : self._at + count]
        if len(taken) < count:
            self._refuse("it is truncated")
        self._at += count
        return taken

    def _bytes(self, count: int) -> bytes:
        if count > _MOST_TEXT:
            self._refuse("it holds a text of more than 1 MiB")
        return self._take(count)

    def _text(self, count: int) -> str:
        return self._bytes(count).decode("utf-8", "replace")

    def _number(self, count: int, *, signed: bool = False) -> int:
        return int.from_bytes(self._take(count), "little", signed=signed)

    def _made(self, value: Any) -> None:
        """Pushes a new container."""
        self._objects += 1
        if self._objects > _MOST_OBJECTS:
            self._refuse(f"it holds more than {_MOST_OBJECTS:,} objects outside of the history")
        self._stack.append(value)

    def _since_mark(self) -> list[Any]:
        at = self._marks.pop()
        values = self._stack[at:]
        del self._stack[at:]
        return values

    def _mark(self) -> None:
        self._objects += 1
        if self._objects > _MOST_OBJECTS:
            self._refuse(f"it holds more than {_MOST_OBJECTS:,} objects outside of the history")
        self._marks.append(len(self._stack))

    def _empty_dict(self) -> None:
        self._dict_at = self._at - 1
        self._made({})

    def _set_items(self) -> None:
        values = self._since_mark()
        target = self._stack[-1]
        if not isinstance(target, dict):
            self._refuse("it is damaged")
        target.update(zip(values[::2], values[1::2], strict=True))
        if self._dict_at >= 0 and "action" in target and self._layouts < _MOST_LAYOUTS:
            layout = find_layout(self._data[self._dict_at : self._at], target)
            if layout is not None and layout != self._layout:
                self._layout, self._decoded = layout, None
                self._layouts += 1
        self._dict_at = -1

    def _set_item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        target = self._stack[-1]
        if not isinstance(target, dict):
            self._refuse("it is damaged")
        target[key] = value

    def _append(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, list):
            self._refuse("it is damaged")
        target.extend(values)

    def _append_one(self) -> None:
        self._append([self._stack.pop()])

    def _tuple(self, count: int) -> None:
        at = len(self._stack) - count
        if at < 0:
            self._refuse("it is damaged")
        value = tuple(self._stack[at:])
        del self._stack[at:]
        self._made(value)

    def _protocol(self) -> None:
        if self._number(1) > 5:
            self._refuse("it has an unknown version of the pickle format")

    def _frame_header(self) -> None:
        self._take(8)  # the length of a frame, which only helps to read it at once

    def _put(self, place: int) -> None:
        """Writers number the values in order, so any other place is damage, or an attack on memory."""
        if place != len(self._places):
            self._refuse("it is damaged")
        self._memoize()

    def _get(self, place: int) -> None:
        self._stack.append(self._object(place))

    def _take_entries(self) -> bool:
        """Reads the entries that follow one another from this EMPTY_DICT on. False if there are none."""
        if self._decoded is None and self._layout is not None:
            self._decoded = decode(self._data, self._layout)
        decoded = self._decoded
        if decoded is None:
            return False
        first = int(np.searchsorted(decoded.start, self._at))
        if first == len(decoded.start) or decoded.start[first] != self._at:
            return False
        count = int(np.argmin(decoded.follows[first:]))  # the last one never has one that follows
        new = first + np.flatnonzero(decoded.new_list[first : first + count])
        stacks, usable = self._new_stacks(decoded, new)
        if usable is not None:
            count = usable - first
            new = new[: len(stacks)]
        if count == 0:
            return False
        rows = slice(first, first + count)
        self._at, self._dict_at = int(decoded.end[rows][-1]), -1
        memo_at = len(self._places) + np.cumsum(decoded.memoized[rows]) - decoded.memoized[rows]
        places = np.full(int(decoded.memoized[rows].sum()), _NOTHING, np.intc)
        places[memo_at[new - first] + decoded.list_memo[new] - len(self._places)] = stacks
        self._places.frombytes(places.tobytes())
        stack = self._known_stacks(decoded.frames_get[rows])
        stack[new - first] = stacks
        self._stack.append(self._entries(decoded, rows, stack))
        return True

    def _new_stacks(self, decoded: Decoded, rows: I8) -> tuple[list[StackId], int | None]:
        """The stacks of entries that hold a list of their own, and the first of them whose list is none."""
        data, bodies = self._data, self._bodies
        found: list[StackId] = []
        for row, start, end in zip(
            rows.tolist(), decoded.frames_at[rows].tolist(), decoded.end[rows].tolist(), strict=True
        ):
            body = data[start : end - 1]
            stack = bodies.get(body)
            if stack is None:
                if not is_list(body):
                    return found, row
                stack = bodies[body] = self._number_of(
                    [self._frame(self._object(reference)) for reference in references(body)]
                )
            found.append(stack)
        return found, None

    def _known_stacks(self, gets: I8) -> npt.NDArray[np.int32]:
        """The stacks at these places in the memo; -1 where there is none."""
        known = np.frombuffer(self._places, np.intc)[gets]
        stack = np.where((gets >= 0) & (known >= 0), known, -1).astype(np.int32)
        for row in np.flatnonzero((gets >= 0) & (known < _NOTHING)).tolist():
            number = self.stack_of(self._object(int(gets[row])))
            stack[row] = -1 if number is None else number
        return stack

    def _entries(self, decoded: Decoded, rows: slice, stack: npt.NDArray[np.int32]) -> Entries:
        places, index = np.unique(decoded.action_get[rows], return_inverse=True)
        codes = np.array([action_code(self._object(place)) for place in places.tolist()], np.int8)
        missing = np.full(len(stack), -1, np.int64)
        address, size, time_us = (
            decoded.numbers[name][rows] if name in decoded.numbers else missing for name in NUMBERS
        )
        return Entries(codes[index], address, size, time_us, stack)

    def _object(self, place: int) -> Any:
        """The value at a place of the memo."""
        number = self._places[place]
        if number >= 0:
            return StackId(number)
        return None if number == _NOTHING else self._memo[_NOTHING - 1 - number]

    def _memoize(self) -> None:
        self._places.append(_NOTHING - 1 - len(self._memo))
        self._memo.append(self._stack[-1])

    def _frame(self, frame: Any) -> int:
        """The number of a frame."""
        if not isinstance(frame, dict):
            return self._numbered(("", 0, ""))
        file, line, name = (frame.get(key) for key in ("filename", "line", "name"))
        return self._numbered((_cut(file), line if isinstance(line, int) else 0, _cut(name)))

    def _numbered(self, frame: tuple[str, int, str]) -> int:
        return self._frame_numbers.setdefault(frame, len(self._frame_numbers))

    def _number_of(self, frames: list[int]) -> StackId:
        key = tuple(frames)
        known = self._stack_numbers.get(key)
        if known is None:
            known = self._stack_numbers[key] = StackId(len(self._stack_numbers))
        return known


def _cut(text: Any) -> str:
    return text[:_MOST_NAME] if isinstance(text, str) else ""


_Operation = Callable[[PlainPickle], None]
_OPERATIONS: dict[int, _Operation] = {
    ord("("): PlainPickle._mark,
    ord("N"): lambda pickle: pickle._stack.append(None),
    0x88: lambda pickle: pickle._stack.append(True),
    0x89: lambda pickle: pickle._stack.append(False),
    ord("J"): lambda pickle: pickle._stack.append(pickle._number(4, signed=True)),
    ord("K"): lambda pickle: pickle._stack.append(pickle._number(1)),
    ord("M"): lambda pickle: pickle._stack.append(pickle._number(2)),
    0x8A: lambda pickle: pickle._stack.append(pickle._number(pickle._number(1), signed=True)),
    ord("G"): lambda pickle: pickle._stack.append(struct.unpack(">d", pickle._take(8))[0]),
    ord("X"): lambda pickle: pickle._stack.append(pickle._text(pickle._number(4))),
    0x8C: lambda pickle: pickle._stack.append(pickle._text(pickle._number(1))),
    0x8D: lambda pickle: pickle._stack.append(pickle._text(pickle._number(8))),
    ord("B"): lambda pickle: pickle._stack.append(pickle._bytes(pickle._number(4))),
    ord("C"): lambda pickle: pickle._stack.append(pickle._bytes(pickle._number(1))),
    0x8E: lambda pickle: pickle._stack.append(pickle._bytes(pickle._number(8))),
    ord("]"): lambda pickle: pickle._made([]),
    ord("}"): PlainPickle._empty_dict,
    ord(")"): lambda pickle: pickle._made(()),
    ord("a"): PlainPickle._append_one,
    ord("e"): lambda pickle: pickle._append(pickle._since_mark()),
    ord("s"): PlainPickle._set_item,
    ord("u"): PlainPickle._set_items,
    ord("t"): lambda pickle: pickle._made(tuple(pickle._since_mark())),
    0x85: lambda pickle: pickle._tuple(1),
    0x86: lambda pickle: pickle._tuple(2),
    0x87: lambda pickle: pickle._tuple(3),
    ord("q"): lambda pickle: pickle._put(pickle._number(1)),
    ord("r"): lambda pickle: pickle._put(pickle._number(4)),
    ord("h"): lambda pickle: pickle._get(pickle._number(1)),
    ord("j"): lambda pickle: pickle._get(pickle._number(4)),
    0x94: PlainPickle._memoize,
    0x95: PlainPickle._frame_header,
    0x80: PlainPickle._protocol,
}
