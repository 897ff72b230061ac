"""A trace on disk: Kineto's output, gzipped, with the key `traceopt` in front of its own keys.

Kineto's own way to add metadata turns every backslash into a slash, which breaks the file; so the key is inserted into
the text. Head and body are separate deflate blocks of one gzip member. The head is complete only when the run ends; it
is then replaced without compressing the body again.
"""

from __future__ import annotations

import json
import os
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

_GZIP_HEADER = b"\x1f\x8b\x08\x00" + bytes(4) + b"\x04\xff"  # deflate, no time, fastest, unknown system
_RAW_DEFLATE = -15
_LEVEL = 1  # 1 us per event; level 9, torch's choice, takes 9 us
_CHUNK = 1 << 20
_END_OF_BLOCK = b"\x00\x00\xff\xff"  # of a full flush
_MOST_HEAD_BYTES = 64 << 20
_MOST_BYTES = 1 << 28  # a larger file may hold more than 4 GB, which its length modulo 2^32 does not tell


@dataclass
class SavedTrace:
    """`body_offset` is where the compressed body begins in the file; `body_bytes` and `body_crc` describe the
    raw body.
    """

    path: Path
    body_offset: int
    body_bytes: int
    body_crc: int

    def replace_head(self, head: dict[str, Any]) -> None:
        """Replaces the content of the key `traceopt`. Raises OSError; the old file then remains."""
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        start = _head_bytes(head)
        try:
            with self.path.open("rb") as old, temporary.open("wb") as new:
                offset = _write_head(new, start)
                old.seek(self.body_offset)
                left = os.path.getsize(self.path) - self.body_offset - 8
                while left > 0 and (chunk := old.read(min(_CHUNK, left))):
                    left -= len(chunk)
                    new.write(chunk)
                new.write(_trailer(start, self.body_crc, self.body_bytes))
            os.replace(temporary, self.path)
            self.body_offset = offset
        finally:
            temporary.unlink(missing_ok=True)


def open_saved(path: Path) -> tuple[SavedTrace, dict[str, Any]]:
    """A trace that another process saved, with the content of its key `traceopt`. Raises OSError, ValueError for
    any other file.
    """
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path.name} is too large")
    with path.open("rb") as file:
        data = file.read(_MOST_HEAD_BYTES)
        file.seek(-8, os.SEEK_END)
        crc, length = struct.unpack("<II", file.read(8))
    if not data.startswith(_GZIP_HEADER):
        raise ValueError(f"{path.name} is no trace of traceopt run")
    end = data.find(_END_OF_BLOCK) + len(_END_OF_BLOCK)
    try:
        start = zlib.decompressobj(_RAW_DEFLATE).decompress(data[len(_GZIP_HEADER) : end])
    except zlib.error as error:
        raise ValueError(f"{path.name} is damaged: {error}") from error
    head = json.loads(start[:-1] + b"}")["traceopt"]  # without the comma before Kineto's own keys
    body = length - len(start)
    return SavedTrace(path, end, body, crc ^ _shifted_crc(start, body)), head


def save(profiler: Any, folder: Path, worker: str, head: dict[str, Any]) -> SavedTrace:
    """Writes `{worker}.{ns}.pt.trace.json.gz`, the name that TensorBoard expects. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{worker}.{time.time_ns()}"
    raw = folder / f".{name}.raw.json"
    temporary = folder / f".{name}.tmp"
    try:
        profiler.export_chrome_trace(str(raw))
        if not raw.exists() or not raw.stat().st_size:
            raise OSError("the profiler wrote no file (is the disk full?)")
        with raw.open("rb") as source, temporary.open("wb") as target:
            written = _compress(source, target, head)
        path = folder / f"{name}.pt.trace.json.gz"
        os.replace(temporary, path)
        return SavedTrace(path, *written)
    finally:
        for leftover in (raw, temporary, raw.with_name(raw.name + ".tmp")):  # Kineto writes .tmp and renames it
            leftover.unlink(missing_ok=True)


def _compress(source: IO[bytes], target: IO[bytes], head: dict[str, Any]) -> tuple[int, int, int]:
    first = source.read(_CHUNK)
    brace = first.find(b"{")
    if brace < 0:
        raise OSError("the profiler wrote no JSON object")
    start = _head_bytes(head)
    offset = _write_head(target, start)
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW_DEFLATE)
    length = crc = 0
    chunk = first[brace + 1 :]
    while chunk:
        length += len(chunk)
        crc = zlib.crc32(chunk, crc)
        target.write(deflate.compress(chunk))
        chunk = source.read(_CHUNK)
    target.write(deflate.flush())
    target.write(_trailer(start, crc, length))
    return offset, length, crc


def _head_bytes(head: dict[str, Any]) -> bytes:
    return b'{\n  "traceopt": ' + json.dumps(head, default=str).encode() + b","


def _write_head(target: IO[bytes], start: bytes) -> int:
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW_DEFLATE)
    block = deflate.compress(start) + deflate.flush(zlib.Z_FULL_FLUSH)  # ends at a byte, and the stream continues
    target.write(_GZIP_HEADER + block)
    return len(_GZIP_HEADER) + len(block)


def _trailer(start: bytes, body_crc: int, body_bytes: int) -> bytes:
    crc = body_crc ^ _shifted_crc(start, body_bytes)
    return struct.pack("<II", crc, (len(start) + body_bytes) & 0xFFFFFFFF)


def _shifted_crc(start: bytes, body_bytes: int) -> int:
    """What the start adds to the checksum of a body. CRC-32 is affine: crc(start + body) = crc(start + zeros) ^
    crc(zeros) ^ crc(body), with as many zeros as the body is long.
    """
    crc = 0
    for seed in (zlib.crc32(start), 0):
        for size in _chunks(body_bytes):
            seed = zlib.crc32(_ZEROS[:size], seed)
        crc ^= seed
    return crc


_ZEROS = memoryview(bytes(_CHUNK))


def _chunks(length: int) -> Iterator[int]:
    while length > 0:
        yield min(_CHUNK, length)
        length -= _CHUNK
