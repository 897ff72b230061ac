"""A trace file or a file beside one, wherever it is stored: its name for display, what the name says, its bytes."""

from __future__ import annotations

import lzma
import os
import re
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import IO

from msgspec import Struct

from traceopt.analyzer.nsight.processes import NsightProcess
from traceopt.analyzer.reading.limits import check_ratio
from traceopt.analyzer.reading.places.object_stores import head_of, is_remote, open_remote, without_secrets
from traceopt.analyzer.reading.places.tar_archives import TarArchive, is_tar
from traceopt.analyzer.vocabulary.companion_kinds import START_BYTES, KindName
from traceopt.errors import InputError

_TENSORBOARD_NAME = re.compile(r"(?P<worker>.+?)(\.(?P<span>[0-9]{1,20}))?\.pt\.trace\.json(\.gz)?", re.IGNORECASE)
_RANK = re.compile(r"(?<![a-z])(?<!local[-_])rank[-_.=]?(?P<number>[0-9]{1,6})(?![0-9])", re.IGNORECASE)
_WORLD_SIZE = re.compile(
    r"(?:(?<![a-z])world[-_]?(?:size)?|(?<=[0-9])[-_]?of)[-_.=]?(?P<number>[0-9]{1,6})(?![0-9])", re.IGNORECASE
)
_UNDECODED = re.compile("[\udc80-\udcff]")  # what Python makes of bytes of a path that are no UTF-8 (PEP 383)
_BAD_ARCHIVE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error, EOFError)
UNREADABLE = (OSError, RuntimeError, ValueError, *_BAD_ARCHIVE)  # RuntimeError: encrypted; ValueError: bad names


class TraceSource(Struct, frozen=True):
    """One trace file, or one `member` of a zip or tar archive. The hints come from its name; metadata takes precedence.

    `worker` and `span` come from TensorBoard's `{worker}.{span}.pt.trace.json`. `named` means that the user gave this
    file itself, so failing to read it is an error; for a file found in a folder it is a warning. `size_bytes` is the
    size as stored, compressed or not; for a member, the size without the archive's compression. An export of Nsight
    Systems has one source for each `process` that used a GPU.
    """

    place: str  # an absolute path, or a URL
    member: str | None
    label: str
    rank_hint: int | None = None
    world_size_hint: int | None = None
    worker: str | None = None
    span: int | None = None
    named: bool = False
    size_bytes: int = 0
    process: NsightProcess | None = None  # of an export of Nsight Systems

    @property
    def folder(self) -> str:
        return self.place.rpartition("/")[0] if is_remote(self.place) else os.path.dirname(self.place)

    @property
    def local_path(self) -> str | None:
        """Its path, if it is a file of its own."""
        return None if self.member is not None or is_remote(self.place) else self.place

    def open(self) -> IO[bytes]:
        """The raw bytes, gzipped or not. Raises InputError if they cannot be read."""
        try:
            if self.member is None:
                return open_remote(self.place) if is_remote(self.place) else open(self.place, "rb")
            with opened_archive(self.place) as archive:
                member = archive.getinfo(self.member)
                check_ratio(member.file_size, member.compress_size)
                return archive.open(self.member)  # keeps the file open until the member is closed
        except (KeyError, *UNREADABLE) as error:
            raise InputError(f"cannot read {self.label}: {reason_of(error)}") from error

    def head(self, byte_count: int) -> bytes:
        """The first raw bytes. Raises InputError or OSError if they cannot be read."""
        if self.member is None and is_remote(self.place):
            return head_of(self.place, byte_count)
        with self.open() as stream:
            return stream.read(byte_count)


class CompanionFile(Struct, frozen=True):
    """A file recorded beside a trace: a memory snapshot, a compile log, ..."""

    kind: KindName
    source: TraceSource


def local_source(path: Path) -> TraceSource:
    """A file on this disk. Raises OSError if it does not exist."""
    return source_of(str(path), None, False, path.stat().st_size)


def opened_archive(place: str) -> zipfile.ZipFile | TarArchive:
    if not is_remote(place):
        path = Path(place)
        return TarArchive(place, path.stat().st_size) if is_tar(start_of(path)) else zipfile.ZipFile(place)
    stream = open_remote(place)
    if not is_tar(head_of(place, START_BYTES)):
        return zipfile.ZipFile(stream)
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    return TarArchive(stream, size)


def source_of(place: str, member: str | None, named: bool, size_bytes: int) -> TraceSource:
    label = label_of(place, member)
    parts = re.split(r"[/\\]", label)[::-1]
    tensorboard = _TENSORBOARD_NAME.fullmatch(parts[0])
    return TraceSource(
        # It may be read from another working directory.
        place=place if is_remote(place) else str(Path(place).absolute()),
        member=member,
        label=label,
        rank_hint=_hint(_RANK, parts),
        world_size_hint=_hint(_WORLD_SIZE, parts),
        worker=tensorboard["worker"] if tensorboard else None,
        span=int(tensorboard["span"]) if tensorboard and tensorboard["span"] else None,
        named=named,
        size_bytes=size_bytes,
    )


def _hint(pattern: re.Pattern[str], parts: list[str]) -> int | None:
    """The number in the file name, otherwise in the nearest folder that has one."""
    return next((int(match["number"]) for part in parts if (match := pattern.search(part))), None)


def printable(path: str) -> str:
    """The path with bytes that are no UTF-8 as in a URL: "trace%FF.json"."""
    return _UNDECODED.sub(lambda byte: f"%{ord(byte[0]) - 0xDC00:02X}", path)


def label_of(place: str, member: str | None = None) -> str:
    """The path for display: relative if it is inside the current folder, otherwise as given."""
    if is_remote(place):
        text = without_secrets(place)
    else:
        path = Path(place)
        text = (
            path.relative_to(Path.cwd()) if path.is_absolute() and path.is_relative_to(Path.cwd()) else path
        ).as_posix()
        text = printable(text)
    return text if member is None else f"{text}/{member}"


def start_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(START_BYTES)


def reason_of(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
