"""Exports of Nsight Systems as files: recognizes one by its first bytes, unpacks a compressed one, reads a process."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

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


def nsight_processes(path: str, label: str) -> list[NsightProcess]:
    """The processes of an export of Nsight Systems; none for another database. Raises InputError if it is damaged."""
    with _plain(path, label) as plain, opened(plain, label) as database:
        return find_processes(database) if is_nsight(database) else []


def read_nsight(
    path: str, label: str, process: NsightProcess, *, rank_hint: int | None, world_size_hint: int | None
) -> Trace:
    """The trace of one process. Raises InputError if the file is damaged, or has no events."""
    with _plain(path, label) as plain, opened(plain, label) as database:
        return read_process(
            database,
            process,
            path=label,
            rank=rank_hint,
            world_size=world_size_hint,
            byte_count=os.path.getsize(plain),
            sha256=_digest(path),
        )


@contextmanager
def _plain(path: str, label: str) -> Iterator[str]:
    """A path to the uncompressed database: its own, or a temporary file that is deleted afterwards."""
    try:
        with open(path, "rb") as stream:
            if stream.read(len(GZIP_MAGIC)) != GZIP_MAGIC:
                check_size(os.path.getsize(path), most_text_bytes())
                yield path
                return
            stream.seek(0)
            blocks = TextBlocks(stream, most_bytes=most_text_bytes())
            with tempfile.NamedTemporaryFile(prefix="traceopt-", suffix=".sqlite") as unpacked:
                for block in blocks:
                    unpacked.write(block)
                unpacked.flush()
                if blocks.damage:
                    raise InputError(f"{label}: {blocks.damage}")
                yield unpacked.name
    except TooLargeError as error:
        raise InputError(f"{label}: {error}") from None


def _digest(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(_HASHED_BYTES):
            digest.update(block)
    return digest.hexdigest()
