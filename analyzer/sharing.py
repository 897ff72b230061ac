"""Two processes read one large trace: both inflate and cut all of its text, each decodes every second chunk.

So they need not speak to each other before the end, when the columns of the one are put between those of the other, as
if one process had read all. Whatever is damaged or unusual is not for this: then one process reads the file again.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.builder import TEXT_COLUMNS, Content, Mark, TableBuilder, base_of
from traceopt.analyzer.chunks import EVENT_LIMIT_BYTES, EventStream, last_border
from traceopt.analyzer.columns import Codes, Value
from traceopt.analyzer.events import Event, decode_events
from traceopt.analyzer.inflate import GZIP_MAGIC, Blocks
from traceopt.analyzer.recovery import UNREADABLE, is_utf8

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

SHARED_FROM_BYTES = 150_000_000  # of JSON; below, two are hardly sooner done, and hold half as much memory again


class NotShareableError(Exception):
    """The text has to be read in one piece."""


class _Half(EventStream):
    """Yields the chunks whose number is even, or odd; of chunk 0 both need the time."""

    odd: bool = False
    number: int = 0  # of the chunk that was yielded last

    def __iter__(self) -> Iterator[list[Event]]:
        blocks = iter(self.blocks)
        carry, block = b"", self._find_events(blocks)
        number = 0
        for following in blocks:  # the last block ends the events: it is for the one that has chunk 0
            border = last_border(block)
            if border is None:
                carry += block
                if len(carry) > EVENT_LIMIT_BYTES:
                    raise NotShareableError
            else:
                end, start = border
                if number == 0 or number % 2 == self.odd:
                    self.number = number
                    array = b"".join((b"[", carry, memoryview(block)[:end], b"]"))
                    if not is_utf8(array):
                        raise NotShareableError
                    try:
                        yield decode_events(array)
                    except UNREADABLE:
                        raise NotShareableError from None
                carry = block[start:]
                number += 1
            block = following
        if not self.odd:
            for chunk in self._decoded(carry, block, blocks):
                self.number = number
                yield chunk
                number += 1


def shareable(stream: IO[bytes]) -> bool:
    """Whether a second process can read the stream too, there is a core for it, and enough to read."""
    if not isinstance(stream, io.BufferedReader) or not isinstance(stream.raw, io.FileIO):
        return False
    if not sys.platform.startswith("linux") or _text_bytes(stream) < SHARED_FROM_BYTES:
        return False
    import multiprocessing

    of_pool = multiprocessing.parent_process() is not None  # it has its share of the cores already
    return not of_pool and len(os.sched_getaffinity(0)) > 1


def _text_bytes(stream: io.BufferedReader) -> int:
    """The size of a file's text, by what gzip writes at its end: below 4 GiB and of one member it is that."""
    size = os.fstat(stream.fileno()).st_size
    if stream.peek(2)[:2] != GZIP_MAGIC or size < 4:
        return size
    stream.seek(-4, os.SEEK_END)
    told = int.from_bytes(stream.read(4), "little")
    stream.seek(0)
    return max(size, told)


class _Part(Struct, frozen=True):
    """What one process has read, the numbers of its chunks, and how far it was before and after each."""

    content: Content
    numbers: list[int]
    marks: list[Mark]


def read_shared(blocks: Blocks, tell: Callable[[int], None]) -> tuple[EventStream, TableBuilder]:
    """All that is in `blocks`, which nothing has been read of; `tell` hears of the bytes. Raises NotShareableError."""
    import multiprocessing

    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    helper = context.Process(target=_help, args=(blocks.stream.name, receiver, sender), daemon=True)
    try:
        helper.start()
    except OSError as error:  # no room for another process
        raise NotShareableError from error
    sender.close()
    try:
        half, builder = _Half(blocks), TableBuilder()
        own = _read(half, builder, lambda: tell(blocks.byte_count))
        if blocks.damage or half.damage:
            raise NotShareableError
        try:
            other: _Part = receiver.recv()
        except (EOFError, OSError):  # the helper has found something, or was killed
            raise NotShareableError from None
        _put_together(builder, own, other)
        return half, builder
    finally:
        receiver.close()
        helper.kill()
        helper.join()


def _help(path: str, receiver: Connection, sender: Connection) -> None:
    """The other process: reads the odd chunks, and sends them or ends without a word."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that it helps ends it
    receiver.close()
    with suppress(Exception), open(path, "rb") as stream:  # whatever it is, the other one comes upon it too
        sender.send(_read(_Half(Blocks(stream), odd=True), TableBuilder(), lambda: None))


def _read(half: _Half, builder: TableBuilder, tell: Callable[[], None]) -> _Part:
    numbers, marks = [], [builder.mark()]
    for chunk in half:
        if half.number == 0:
            builder.base_us = base_of(chunk)
            if builder.base_us is None:
                raise NotShareableError
        if half.number > 0 or not half.odd:
            builder.add(chunk)
            numbers.append(half.number)
            marks.append(builder.mark())
        tell()
    content = builder.content()
    if content is None:
        raise NotShareableError
    return _Part(content, numbers, marks)


_Chunk = tuple[int, int, Mark, Mark]  # number, whose it is (0 or 1), how far that one was before and after


def _put_together(builder: TableBuilder, own: _Part, other: _Part) -> None:
    """Puts the other's chunks between the own ones, in `builder`."""
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
        raise NotShareableError  # the file has changed meanwhile
    names, codes_of_names = _one_dictionary([p.content.names for p in parts], chunks, lambda mark: mark.names)
    texts, codes_of_texts = _one_dictionary([p.content.texts for p in parts], chunks, lambda mark: mark.texts)
    columns: dict[str, dict[str, Any]] = {}
    for kind, schema in own.content.columns.items():
        rows = [(which, slice(before.rows[kind], after.rows[kind])) for _, which, before, after in chunks]
        columns[kind] = {}
        for column in list(schema):
            values = [part.content.columns[kind].pop(column) for part in parts]  # so that none is held twice for long
            codes = codes_of_names if column == "name" else codes_of_texts if column in TEXT_COLUMNS else None
            if codes is not None:
                values = [new[old] for new, old in zip(codes, values, strict=True)]
            columns[kind][column] = np.concatenate([values[which][piece] for which, piece in rows])
    builder.take(columns, names, texts, other.content)


def _one_dictionary(
    values: Sequence[list[Value]], chunks: Sequence[_Chunk], size: Callable[[Mark], int]
) -> tuple[Codes[Value], list[npt.NDArray[np.int32]]]:
    """The values of two dictionaries in the order in which one reader had seen them, and the new code for each old one.

    The last of the new codes is -1, for -1.
    """
    together: Codes[Value] = Codes()
    codes = [np.full(len(own) + 1, -1, np.int32) for own in values]
    first = size(chunks[0][2])  # those that a dictionary begins with
    steps = [(0, 0, first), (1, 0, first), *((which, size(before), size(after)) for _, which, before, after in chunks)]
    for which, old, new in steps:
        codes[which][old:new] = together.encode(values[which][old:new], new - old)
    return together, codes
