"""Exports of Nsight Systems as files: recognizes one by its first bytes, unpacks a compressed one, reads a process."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Protocol

from traceopt.analyzer.clocks.possible_times import with_possible_times
from traceopt.analyzer.nsight.database import MAGIC, opened
from traceopt.analyzer.nsight.nsight_reader import read_process
from traceopt.analyzer.nsight.processes import NsightProcess, find_processes, is_nsight
from traceopt.analyzer.reading.decompression import GZIP_MAGIC, TextBlocks
from traceopt.analyzer.reading.limits import TooLargeError, check_size, most_text_bytes
from traceopt.analyzer.tables.trace import Trace
from traceopt.errors import InputError

_HASHED_BYTES = 1 << 20


def is_database(start: bytes) -> bool:
    """Whether a file with these first bytes is a SQLite database, plain or gzip."""
    if start.startswith(GZIP_MAGIC):
        try:
            start = zlib.decompressobj(wbits=31).decompress(start, len(MAGIC))
        except zlib.error:
            return False
    return start.startswith(MAGIC)


class StoredFile(Protocol):
    """A file, a member of a zip archive, or an object at a URL. `local_path`: None unless it is a file."""

    @property
    def label(self) -> str: ...
    @property
    def local_path(self) -> str | None: ...
    def open(self) -> IO[bytes]:
        """The stored bytes. Raises InputError if they cannot be read."""


def nsight_processes(file: StoredFile) -> list[NsightProcess]:
    """The processes of an export of Nsight Systems; none for another database. Raises InputError if it is damaged."""
    with _plain(file) as (path, _), opened(path, file.label) as database:
        return find_processes(database) if is_nsight(database) else []


def read_nsight(
    file: StoredFile, process: NsightProcess, *, rank_hint: int | None, world_size_hint: int | None
) -> Trace:
    """The trace of one process. Raises InputError if the file is damaged, or has no events."""
    with _plain(file) as (path, digest), opened(path, file.label) as database:
        trace = read_process(
            database,
            process,
            path=file.label,
            rank=rank_hint,
            world_size=world_size_hint,
            byte_count=os.path.getsize(path),
            sha256=digest or _digest(path),
        )
    return with_possible_times(trace)


@contextmanager
def _plain(file: StoredFile) -> Iterator[tuple[str, str | None]]:
    """A path to the uncompressed database: its own, or a temporary file that is deleted afterwards, with the SHA-256 of
    the stored bytes.
    """
    try:
        with file.open() as stream:
            if file.local_path is not None:
                if stream.read(len(GZIP_MAGIC)) != GZIP_MAGIC:
                    check_size(os.path.getsize(file.local_path), most_text_bytes())
                    yield file.local_path, None
                    return
                stream.seek(0)
            blocks = TextBlocks(stream, most_bytes=most_text_bytes())
            with tempfile.NamedTemporaryFile(prefix="traceopt-", suffix=".sqlite") as unpacked:
                for block in blocks:
                    unpacked.write(block)
                unpacked.flush()
                if blocks.damage:
                    raise InputError(f"{file.label}: {blocks.damage}")
                yield unpacked.name, blocks.digest.hexdigest()
    except TooLargeError as error:
        raise InputError(f"{file.label}: {error}") from None


def _digest(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(_HASHED_BYTES):
            digest.update(block)
    return digest.hexdigest()
