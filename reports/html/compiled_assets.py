"""What is made once of the files of a package: kept beside them, where and when Python keeps compiled modules."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket

from traceopt.version import __version__


def kept(name: str, key: bytes, make: Callable[[], bytes]) -> bytes:
    """What `make` gives, from the file of this name if that was made for the same key."""
    data = _read(name)
    if data.startswith(key):
        return data[len(key) :]
    made = make()
    _write(name, key + made)
    return made


class CompiledTemplates(jinja2.BytecodeCache):
    """Templates as Python code: to compile those of a report takes 0.16 s."""

    def get_source_checksum(self, source: str) -> str:
        """Of what decides the code: the source, this program and Jinja."""
        return super().get_source_checksum(f"{__version__} {jinja2.__version__} {source}")

    def load_bytecode(self, bucket: Bucket) -> None:
        """Leaves the bucket empty where there is no usable file."""
        bucket.bytecode_from_string(_read(bucket.key))

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keeps what was compiled."""
        _write(bucket.key, bucket.bytecode_to_string())


def _place(name: str) -> Path:
    """Raises NotImplementedError where this Python keeps nothing."""
    return Path(cache_from_source(str(Path(__file__).with_name(f"{name}.py")))).with_suffix(".kept")


def _read(name: str) -> bytes:
    with suppress(OSError, NotImplementedError):
        return _place(name).read_bytes()
    return b""


def _write(name: str, data: bytes) -> None:
    """In one step, or not at all: the folder may not be ours."""
    if sys.dont_write_bytecode:
        return
    with suppress(OSError, NotImplementedError):
        place = _place(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_suffix(f".{os.getpid()}")
        try:
            part.write_bytes(data)
            part.replace(place)
        finally:
            part.unlink(missing_ok=True)
