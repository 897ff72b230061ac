"""Tar archives, plain or compressed, with the part of zipfile.ZipFile's interface that traces are found and read by."""

from __future__ import annotations

import tarfile
import zlib
from typing import IO, cast

from msgspec import Struct

from traceopt.analyzer.reading.limits import MOST_MEMBERS, check_ratio

_MAGIC, _MAGIC_AT = b"ustar", 257
_BLOCK_BYTES = 512


def is_tar(start: bytes) -> bool:
    """Whether a file with these first bytes is a tar archive, plain or gzip."""
    if start.startswith(b"\x1f\x8b"):
        try:
            start = zlib.decompressobj(wbits=31).decompress(start, _BLOCK_BYTES)
        except zlib.error:
            return False
    return start[_MAGIC_AT:].startswith(_MAGIC)


class _Size(Struct, frozen=True):
    file_size: int
    compress_size: int


class TarArchive:
    """The files of a tar archive, which stays open as long as it or one of its files is in use.

    Raises tarfile.TarError; ValueError if it holds too many files, or files that are far larger than itself.
    """

    def __init__(self, place: str | IO[bytes], packed_bytes: int) -> None:
        self._packed_bytes = packed_bytes
        self._tar = tarfile.open(place) if isinstance(place, str) else tarfile.open(fileobj=place)  # noqa: SIM115
        self._files: dict[str, tarfile.TarInfo] = {}
        for member in self._tar:
            check_ratio(member.offset_data + member.size, packed_bytes)
            if len(self._files) > MOST_MEMBERS:
                break  # the user is told
            if member.isfile():
                self._files[member.name.removeprefix("./")] = member

    def __enter__(self) -> TarArchive:
        return self

    def __exit__(self, *_: object) -> None:
        """Does not close it, because a file of it may be read next."""

    def namelist(self) -> list[str]:
        return list(self._files)

    def getinfo(self, name: str) -> _Size:
        return _Size(self._files[name].size, self._packed_bytes)

    def open(self, name: str) -> IO[bytes]:
        return cast(IO[bytes], self._tar.extractfile(self._files[name]))  # None only for folders and the like
