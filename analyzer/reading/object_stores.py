"""Files in object stores and other far places, through fsspec: found by their URL, read in a stream, never copied.

Who may read what is said by the place's own means: environment variables, configuration files, the machine's role.
"""

from __future__ import annotations

import io
import re
from typing import IO, Any, cast

from msgspec import Struct

from traceopt.errors import InputError, one_line

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SECRETS = re.compile(r"(?<=://)[^/@:]*:[^/@]*@|\?.*", re.DOTALL)  # user:password@, and what a signed URL ends in
_BLOCK_BYTES = 8 << 20  # that are asked for at a time: a stream is read from its beginning to its end


class RemoteFile(Struct, frozen=True):
    url: str
    size_bytes: int


class Listing(Struct, frozen=True):
    """What a URL means; `named`: it is that of a file."""

    files: list[RemoteFile]
    named: bool


def is_remote(path: str) -> bool:
    return _URL.match(path) is not None


def shown(url: str) -> str:
    """A URL without passwords and signatures."""
    return _SECRETS.sub("", url)


def list_remote(url: str) -> Listing:
    """A file, all files below a folder, or those that match a pattern. Raises InputError."""
    try:
        system, path = _system(url)
        if any(character in path for character in "*?[") and not system.exists(path):
            return Listing(_files(system, system.glob(path, detail=True)), named=False)
        about = system.info(path)
        if about["type"] == "directory":
            return Listing(_files(system, system.find(path, detail=True)), named=False)
        return Listing([RemoteFile(url, int(about.get("size") or 0))], named=True)
    except Exception as error:  # each kind of place has its own
        raise _unreadable(url, error) from error


def open_remote(url: str) -> IO[bytes]:
    """A stream that raises nothing but OSError. Raises InputError when there is none."""
    try:
        system, path = _system(url)
        file = system.open(path, "rb", block_size=_BLOCK_BYTES, cache_type="readahead")
    except Exception as error:
        raise _unreadable(url, error) from error
    return cast(IO[bytes], _Stream(file))


def head_of(url: str, byte_count: int) -> bytes:
    """The first bytes, without a whole piece of the stream. Raises InputError."""
    try:
        system, path = _system(url)
        return bytes(system.cat_file(path, start=0, end=byte_count))
    except Exception as error:
        raise _unreadable(url, error) from error


def version_of(url: str) -> str:
    """Another one when the file was changed, as far as the place tells. Raises InputError."""
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
        raise InputError(f"cannot read {shown(url)}: that needs fsspec: pip install 'traceopt[remote]'") from None
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
    return InputError(one_line(f"cannot read {shown(url)}: {shown(reason)}"))


class _Stream(io.BufferedIOBase):
    """A file of fsspec; what goes wrong on the way is an OSError, as with any file."""

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
