"""Identifies the program: a hash of its source and of the rules added to it.

The version is not enough: a source checkout changes without it, and rules may come from anywhere.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

from traceopt.version import __version__
from traceopt.workers.rank_task import Rules

_PACKAGES = {
    "traceopt": "*.py",
    "traceopt.analyzer": "**/*.py",
    "traceopt.document": "**/*.py",
    "traceopt.result": "**/*.py",
    "traceopt.rules": "**/*.py",
    "traceopt.workers": "*.py",
}


def program(rules: Rules) -> str:
    """The same hash means the same answers. For an added rule only its own file counts, not what it imports."""
    digest = hashlib.blake2b(_own_source().encode(), digest_size=16)
    for rule in rules.registry.rules:
        if not rule.__module__.startswith("traceopt."):
            file = sys.modules[rule.__module__].__file__
            digest.update(rule.code.encode() + (Path(file).read_bytes() if file else b""))
    return digest.hexdigest()


@cache
def _own_source() -> str:
    digest = hashlib.blake2b(__version__.encode(), digest_size=16)
    for name, path in _files():
        digest.update(f"\0{name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _files() -> Iterator[tuple[str, Path]]:
    for package, pattern in _PACKAGES.items():
        folder = Path(import_module(package).__file__ or "").parent
        for path in sorted(folder.glob(pattern)):
            yield f"{package}/{path.relative_to(folder).as_posix()}", path
