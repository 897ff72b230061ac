"""Files in object stores and other remote places, through fsspec: found by URL and streamed, never copied.

Credentials come from the store's usual sources: environment variables, configuration files, the machine's role.
"""

from __future__ import annotations

import io
import re
from typing import IO, Any, cast

from msgspec import Struct

from traceopt.errors import InputError, one_line

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SECRETS = re.compile(r"(?<=://)[^/@:]*:[^/@]*@|\?.*", re.DOTALL)  # user:password@ and the query of a signed URL
_BLOCK_BYTES = 8 << 20  # read at a time: streams are read from beginning to end


class RemoteFile(Struct, frozen=True):
    url: str
    size_bytes: int


class Listing(Struct, frozen=True):
    """The files that a URL stands for. `named` means that the URL names a single file."""

    files: list[RemoteFile]
    named: bool


def is_remote(path: str) -> bool:
    return _URL.match(path) is not None


def without_secrets(url: str) -> str:
    """The URL without passwords and signatures."""
    return _SECRETS.sub("", url)


def list_remote(url: str) -> Listing:
    """A single file, all files below a folder, or the files that match a pattern. Raises InputError."""
    try:
        system, path = _system(url)
        if any(character in path for character in "*?[") and not system.exists(path):
            return Listing(_files(system, system.glob(path, detail=True)), named=False)
        about = system.info(path)
        if about["type"] == "directory":
            return Listing(_files(system, system.find(path, detail=True)), named=False)
        return Listing([RemoteFile(url, int(about.get("size") or 0))], named=True)
    except Exception as error:  # each kind of store raises its own errors
        raise _unreadable(url, error) from error


def open_remote(url: str) -> IO[bytes]:
    """Opens a stream whose read errors are all OSError. Raises InputError if it cannot be opened."""
    try:
        system, path = _system(url)
        file = system.open(path, "rb", block_size=_BLOCK_BYTES, cache_type="readahead")
    except Exception as error:
        raise _unreadable(url, error) from error
    return cast(IO[bytes], _Stream(file))


def head_of(url: str, byte_count: int) -> bytes:
    """The first bytes, without fetching a whole block. Raises InputError."""
    try:
        system, path = _system(url)
        return bytes(system.cat_file(path, start=0, end=byte_count))
    except Exception as error:
        raise _unreadable(url, error) from error


def version_of(url: str) -> str:
    """Changes when the file changes, as far as the store can tell. Raises InputError."""
    try:
        system, path = _system(url)
        system.invalidate_cache()
        return str(system.ukey(path))
    except Exception as error:
        raise _unreadable(url, error) from error


def _system(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise InputError(
            f"cannot read {without_secrets(url)}: URLs need fsspec; run pip install 'traceopt-profiler[remote]'"
        ) from None
    system, path = url_to_fs(url)
    return system, path


def _files(system: Any, found: dict[str, Any]) -> list[RemoteFile]:
    return [
        RemoteFile(system.unstrip_protocol(path), int(about.get("size") or 0))
        for path, about in sorted(found.items())
        if about["type"] == "file"
    ]


def _unreadable(url: str, error: Exception) -> InputError:
    if isinstance(error, InputError):
        return error
    reason = "no such file or folder" if isinstance(error, FileNotFoundError) else str(error) or type(error).__name__
    return InputError(one_line(f"cannot read {without_secrets(url)}: {without_secrets(reason)}"))


class _Stream(io.BufferedIOBase):
    """A file of fsspec; read errors become OSError, as with any file."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def read(self, size: int | None = -1, /) -> bytes:
        try:
            return bytes(self._file.read(-1 if size is None else size))
        except OSError:
            raise
        except Exception as error:
            raise OSError(one_line(str(error) or type(error).__name__)) from error

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()
