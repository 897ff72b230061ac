"""Reads one large trace with two processes: this one decompresses and splits the text, and both decode it.

The helper decodes one chunk while another waits; chunks that do not fit are decoded here. At the end the columns of
both are interleaved, as if one process had read everything. Damaged or unusual files are read again by one process.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import signal
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.codes import Codes, Value
from traceopt.analyzer.reading.damaged_events import UNREADABLE, is_utf8
from traceopt.analyzer.reading.decompression import BLOCK_BYTES, GZIP_MAGIC, TextBlocks
from traceopt.analyzer.reading.event_stream import EVENT_LIMIT_BYTES, EventStream, last_border
from traceopt.analyzer.reading.event_types import Event, decode_events
from traceopt.analyzer.reading.table_builder import TEXT_COLUMNS, Content, Mark, TableBuilder

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

SHARED_FROM_BYTES = 150_000_000  # of JSON; below it two processes are hardly faster and use half as much memory again
_SLOTS = 2  # one chunk is being decoded, one waits
_SLOT_BYTES = 2 * BLOCK_BYTES  # a chunk is a block plus the rest of the previous one; larger chunks are decoded here
_ORDER = struct.Struct("=BIQ")  # slot, chunk number, bytes


class NotShareableError(Exception):
    """The text has to be read by one process."""


class _ReadPart(Struct, frozen=True):
    """What one process has read, the numbers of its chunks, and its size before and after each of them."""

    content: Content
    numbers: list[int]
    marks: list[Mark]


class _DecodedChunks:
    """The chunks that one process decodes."""

    def __init__(self, builder: TableBuilder) -> None:
        self._builder = builder
        self._numbers: list[int] = []
        self._marks = [builder.mark()]

    def add(self, number: int, events: Sequence[Event]) -> None:
        self._builder.add(events)
        self._numbers.append(number)
        self._marks.append(self._builder.mark())

    def part(self) -> _ReadPart:
        content = self._builder.content()
        if content is None:
            raise NotShareableError
        return _ReadPart(content, self._numbers, self._marks)


class _Helper:
    """The second process, and the shared memory for its text and its columns."""

    def __init__(self, base_us: float) -> None:
        import multiprocessing

        context = multiprocessing.get_context("fork")
        self._slots = mmap.mmap(-1, _SLOTS * _SLOT_BYTES)
        self._free = list(range(_SLOTS))
        self._columns = os.memfd_create("traceopt")
        self._end, end = context.Pipe()
        arguments = (base_us, self._slots, self._columns, end, self._end)
        self._process = context.Process(target=_help, args=arguments, daemon=True)
        try:
            self._process.start()
        except OSError as error:  # the system cannot start another process
            raise NotShareableError from error
        finally:
            end.close()

    def takes(self, number: int, array: bytes) -> bool:
        """Hands it a chunk if it has room. Returns whether it did; raises NotShareableError if the helper has ended."""
        try:
            while self._end.poll():
                self._free.append(self._end.recv())
            if not self._free or len(array) > _SLOT_BYTES:
                return False
            slot = self._free.pop()
            self._slots[slot * _SLOT_BYTES : slot * _SLOT_BYTES + len(array)] = array
            self._end.send_bytes(_ORDER.pack(slot, number, len(array)))
        except (EOFError, OSError):
            raise NotShareableError from None
        return True

    def part(self) -> _ReadPart:
        """Everything that it has read. Raises NotShareableError if it ended early."""
        try:
            self._end.send_bytes(b"")
            while isinstance(answer := self._end.recv(), int):  # a slot is free again
                pass
        except (EOFError, OSError):
            raise NotShareableError from None
        pickled, sizes = answer
        shared = memoryview(mmap.mmap(self._columns, sum(sizes)))
        columns = (shared[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True))
        part: _ReadPart = pickle.loads(pickled, buffers=columns)  # noqa: S301, from the process started here
        return part

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._end.close()
        os.close(self._columns)


def _help(base_us: float, slots: mmap.mmap, columns: int, end: Connection, other_end: Connection) -> None:
    """The helper process: decodes the chunks it is given, then sends its part; ends silently on any error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends it
    other_end.close()
    builder = TableBuilder()
    builder.base_us = base_us
    reading = _DecodedChunks(builder)
    with suppress(Exception):
        while order := end.recv_bytes():
            slot, number, size = _ORDER.unpack(order)
            with memoryview(slots)[slot * _SLOT_BYTES :][:size] as array:
                reading.add(number, decode_events(array))
            end.send(slot)
        buffers: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(reading.part(), protocol=5, buffer_callback=buffers.append)
        with open(columns, "wb", closefd=False) as file:
            for buffer in buffers:
                file.write(buffer.raw())
        end.send((pickled, [buffer.raw().nbytes for buffer in buffers]))


class _Shared(EventStream):
    """Yields the chunks that are decoded here; chunks after the first go to the helper whenever it has room."""

    helper: _Helper | None = None
    number: int = 0  # of the last chunk that was yielded

    def __iter__(self) -> Iterator[list[Event]]:
        blocks = iter(self.blocks)
        carry, block = b"", self._find_events(blocks)
        number = 0
        for following in blocks:
            border = last_border(block)
            if border is None:
                carry += block
                if len(carry) > EVENT_LIMIT_BYTES:
                    raise NotShareableError
            else:
                end, start = border
                array = b"".join((b"[", carry, memoryview(block)[:end], b"]"))
                if not is_utf8(array):
                    raise NotShareableError
                if self.helper is None or not self.helper.takes(number, array):
                    self.number = number
                    try:
                        yield decode_events(array)
                    except UNREADABLE:
                        raise NotShareableError from None
                carry = block[start:]
                number += 1
            block = following
        for chunk in self._decoded(carry, block, blocks):
            self.number = number
            yield chunk
            number += 1


def shareable(stream: IO[bytes]) -> bool:
    """Whether the stream is a large file that a second process can read too, and a second core is available."""
    if not isinstance(stream, io.BufferedReader) or not isinstance(stream.raw, io.FileIO):
        return False
    if not sys.platform.startswith("linux") or _text_bytes(stream) < SHARED_FROM_BYTES:
        return False
    import multiprocessing

    of_pool = multiprocessing.parent_process() is not None  # pool workers already have their share of the cores
    return not of_pool and len(os.sched_getaffinity(0)) > 1


def _text_bytes(stream: io.BufferedReader) -> int:
    """Size of a file's text. For gzip it is in the last 4 bytes, valid for a single member below 4 GiB."""
    size = os.fstat(stream.fileno()).st_size
    if stream.peek(2)[:2] != GZIP_MAGIC or size < 4:
        return size
    stream.seek(-4, os.SEEK_END)
    stored = int.from_bytes(stream.read(4), "little")
    stream.seek(0)
    return max(size, stored)


def read_shared(blocks: TextBlocks, tell: Callable[[int], None]) -> tuple[EventStream, TableBuilder]:
    """Reads everything in `blocks`, from the beginning; calls `tell` with the byte count. Raises NotShareableError."""
    stream, builder = _Shared(blocks), TableBuilder()
    reading = _DecodedChunks(builder)
    try:
        for chunk in stream:
            reading.add(stream.number, chunk)
            if stream.helper is None:
                if builder.base_us is None:
                    raise NotShareableError
                stream.helper = _Helper(builder.base_us)
            tell(blocks.byte_count)
        if blocks.damage or stream.damage or stream.helper is None:
            raise NotShareableError
        _put_together(builder, reading.part(), stream.helper.part())
        return stream, builder
    finally:
        if stream.helper is not None:
            stream.helper.end()


_Chunk = tuple[int, int, Mark, Mark]  # chunk number, reader (0 or 1), reader's size before and after


def _put_together(builder: TableBuilder, own: _ReadPart, other: _ReadPart) -> None:
    """Puts the chunks of both parts into `builder`, in file order."""
    parts = (own, other)
    shared = own.content.thread_names.keys() & other.content.thread_names.keys()
    if any(own.content.thread_names[key] != other.content.thread_names[key] for key in shared):
        raise NotShareableError
    chunks: list[_Chunk] = sorted(
        (
            (number, which, before, after)
            for which, part in enumerate(parts)
            for number, (before, after) in zip(part.numbers, pairwise(part.marks), strict=True)
        ),
        key=lambda chunk: chunk[0],
    )
    if [number for number, *_ in chunks] != list(range(len(chunks))):
        raise NotShareableError  # the file changed in the meantime
    names, codes_of_names = _one_dictionary([p.content.names for p in parts], chunks, lambda mark: mark.names)
    texts, codes_of_texts = _one_dictionary([p.content.texts for p in parts], chunks, lambda mark: mark.texts)
    threads, codes_of_threads = _one_dictionary([p.content.threads for p in parts], chunks, lambda mark: mark.threads)
    codes_of = {"name": codes_of_names, "thread": codes_of_threads} | dict.fromkeys(TEXT_COLUMNS, codes_of_texts)
    columns: dict[str, dict[str, Any]] = {}
    for kind, schema in own.content.columns.items():
        ends = [(which, before.rows[kind], after.rows[kind]) for _, which, before, after in chunks]
        rows = [(which, slice(first, end)) for which, first, end in ends if end > first]
        columns[kind] = {}
        for column in list(schema):
            # Pop, so that no column is held twice for long.
            values = [part.content.columns[kind].pop(column) for part in parts]
            if column in codes_of:
                values = [new[old] for new, old in zip(codes_of[column], values, strict=True)]
            pieces = [values[which][piece] for which, piece in rows]
            columns[kind][column] = np.concatenate(pieces) if pieces else values[0]
    builder.take(columns, names, texts, threads, other.content)


def _one_dictionary(
    values: Sequence[list[Value]], chunks: Sequence[_Chunk], size: Callable[[Mark], int]
) -> tuple[Codes[Value], list[npt.NDArray[np.int32]]]:
    """The values of two dictionaries in the order in which a single reader would have seen them, and the new code for
    each old one.

    The last of the new codes is -1, for -1.
    """
    together: Codes[Value] = Codes()
    codes = [np.full(len(own) + 1, -1, np.int32) for own in values]
    first = size(chunks[0][2])  # what every dictionary begins with
    steps = [(0, 0, first), (1, 0, first), *((which, size(before), size(after)) for _, which, before, after in chunks)]
    for which, old, new in steps:
        codes[which][old:new] = together.encode(values[which][old:new], new - old)
    return together, codes
