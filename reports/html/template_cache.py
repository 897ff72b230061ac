"""Compiled templates are kept next to Python's own bytecode: compiling those of a report takes 0.2 s."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib.util import cache_from_source

import jinja2
from jinja2.bccache import Bucket

from traceopt.version import __version__


class TemplateCache(jinja2.FileSystemBytecodeCache):
    """Writes nothing where Python writes no bytecode: if it is told so, or if the folder is read-only or full."""

    def __init__(self) -> None:
        super().__init__(os.path.dirname(cache_from_source(__file__)), "%s.jinja")

    def get_source_checksum(self, source: str) -> str:
        """Covers what the code depends on: the source, the filters of this program, and Jinja."""
        return super().get_source_checksum(f"{__version__} {jinja2.__version__} {source}")

    def dump_bytecode(self, bucket: Bucket) -> None:
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                super().dump_bytecode(bucket)
