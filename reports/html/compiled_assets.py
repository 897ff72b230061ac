"""Templates compiled once and cached next to the package, where and when Python caches compiled modules."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket

from traceopt.version import __version__


class CompiledTemplates(jinja2.BytecodeCache):
    """Templates as Python code: compiling those of a report takes 0.16 s."""

    def get_source_checksum(self, source: str) -> str:
        """Covers everything that the code depends on: the source, this program and Jinja."""
        return super().get_source_checksum(f"{__version__} {jinja2.__version__} {source}")

    def load_bytecode(self, bucket: Bucket) -> None:
        """Leaves the bucket empty if there is no usable file."""
        bucket.bytecode_from_string(_read(bucket.key))

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Caches the compiled template."""
        _write(bucket.key, bucket.bytecode_to_string())


def _place(name: str) -> Path:
    """Raises NotImplementedError if this Python caches nothing."""
    return Path(cache_from_source(str(Path(__file__).with_name(f"{name}.py")))).with_suffix(".cache")


def _read(name: str) -> bytes:
    with suppress(OSError, NotImplementedError):
        return _place(name).read_bytes()
    return b""


def _write(name: str, data: bytes) -> None:
    """Writes the file in one step, or not at all: the folder may be read-only."""
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
