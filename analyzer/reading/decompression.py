"""Decompresses a byte stream into blocks of JSON text: plain or gzip, in UTF-8 or UTF-16, detected by content, in
bounded memory.
"""

from __future__ import annotations

import codecs
import hashlib
import sys
import zipfile
import zlib
from collections.abc import Iterator
from itertools import chain
from typing import IO, Any

from isal import isal_zlib
from msgspec import Struct, field

from traceopt.analyzer.reading.limits import check_ratio, check_size

GZIP_MAGIC = b"\x1f\x8b"
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_EXTRA_FIELD = 4  # flag of a gzip member whose header has one; its length is at _EXTRA_AT
_EXTRA_AT = 10
BLOCK_BYTES = 1 << 19  # a block and the events decoded from it fit into a core's cache
_INPUT_BYTES = 1 << 15  # decompressobj copies its unconsumed input at every call, so pieces are small
_CORRUPT: Any = (isal_zlib.error, zlib.error, EOFError)  # isal's stubs do not declare its error as a class
_UNREADABLE: Any = (OSError, zipfile.BadZipFile, *_CORRUPT)


class TextBlocks(Struct):
    """Iterates over a stream's text in blocks of about `block_bytes`.

    After the iteration, `byte_count` is the uncompressed size, `digest` the SHA-256 of the stream as read, and `damage`
    a description of what is wrong with it (truncated, corrupt, unreadable from some point on) or None. Raises
    TooLargeError beyond `most_bytes`, and if the stream expands far more than a trace would.
    """

    stream: IO[bytes]
    block_bytes: int = BLOCK_BYTES
    most_bytes: int = sys.maxsize
    byte_count: int = 0
    damage: str | None = None
    digest: Any = field(default_factory=hashlib.sha256)
    _read_bytes: int = 0

    def __iter__(self) -> Iterator[bytes]:
        head = self._read(_INPUT_BYTES)
        pieces = self._inflated(head) if head[:2] == GZIP_MAGIC else self._plain(head)
        waiting: list[bytes] = []
        waiting_bytes = 0
        for piece in _in_utf8(pieces):
            self.byte_count += len(piece)
            check_size(self.byte_count, self.most_bytes)
            check_ratio(self.byte_count, self._read_bytes)
            waiting.append(piece)
            waiting_bytes += len(piece)
            if waiting_bytes >= self.block_bytes * 3 // 4:
                yield b"".join(waiting) if len(waiting) > 1 else waiting[0]
                waiting, waiting_bytes = [], 0
        if waiting:
            yield b"".join(waiting)

    def start_again(self) -> None:
        """Goes back to the beginning of the stream, which must be a file."""
        self.stream.seek(0)
        self.byte_count, self.damage, self._read_bytes, self.digest = 0, None, 0, hashlib.sha256()

    def _read(self, size: int) -> bytes:
        """Reads at most `size` bytes; empty at the end and after a read error."""
        try:
            data = self.stream.read(size)
        except _UNREADABLE as error:
            self.damage = f"reading failed before its end ({error})"
            return b""
        self.digest.update(data)
        self._read_bytes += len(data)
        return data

    def _plain(self, head: bytes) -> Iterator[bytes]:
        while head:
            yield head
            head = self._read(self.block_bytes)

    def _inflated(self, pending: bytes) -> Iterator[bytes]:
        pending = self._with_header(pending)
        inflater = isal_zlib.decompressobj(31)
        while True:
            try:
                piece = inflater.decompress(pending, self.block_bytes)
            except _CORRUPT as error:
                self.damage = f"the gzip stream is corrupt ({error})"
                return
            if piece:
                yield piece
            if inflater.eof:  # a gzip file may hold several members, with zeros between them
                pending = inflater.unused_data.lstrip(b"\0")
                while not pending:
                    more = self._read(_INPUT_BYTES)
                    if not more:
                        return
                    pending = more.lstrip(b"\0")
                if pending[:2] != GZIP_MAGIC[: len(pending)]:
                    self.damage = "non-gzip bytes follow the compressed data"
                    return
                pending = self._with_header(pending)
                inflater = isal_zlib.decompressobj(31)
                continue
            pending = inflater.unconsumed_tail or self._read(_INPUT_BYTES)
            if not pending and not piece:
                self.damage = self.damage or "the gzip stream is truncated"
                return

    def _with_header(self, member: bytes) -> bytes:
        """The start of a gzip member with all of its extra field, which isal reads only in one piece."""
        while len(member) < _EXTRA_AT + 2 or (member[3] & _EXTRA_FIELD and len(member) < _end_of_extra_field(member)):
            more = self._read(_INPUT_BYTES)
            if not more:
                break
            member += more
        return member


def _end_of_extra_field(member: bytes) -> int:
    return _EXTRA_AT + 2 + int.from_bytes(member[_EXTRA_AT : _EXTRA_AT + 2], "little")


def _in_utf8(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same text in UTF-8, if it begins with the byte order mark of UTF-16."""
    first = next(pieces, b"")
    if not first.startswith(UTF16_MARKS):
        yield from chain([first], pieces) if first else ()
        return
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    for piece in chain([first], pieces):
        yield decoder.decode(piece).encode("utf-8", "replace")
