"""Imports the modules of a source tree from a copy of it, whichever way the script finds them.

An editable installation, a .pth file or a path in the script names the original folder. `traceopt try` runs the script
in a changed copy, so a module that would be loaded from the original is loaded from the copy.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from .imports import found_by_others

FROM, TO = "TRACEOPT_MOVED_FROM", "TRACEOPT_MOVED_TO"


def follow() -> None:
    """Starts if the environment names the two folders."""
    original, copy = os.environ.get(FROM), os.environ.get(TO)
    if original and copy:
        sys.meta_path.insert(0, _Finder(original, copy))


class _Finder:
    def __init__(self, original: str, copy: str) -> None:
        self._original = original.rstrip(os.sep) + os.sep
        self._copy = copy.rstrip(os.sep) + os.sep

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = found_by_others(name, path, target, except_for=self)
        file = spec.origin if spec is not None else None
        if file is None or not file.endswith(".py"):
            return None
        moved = self._moved(file)
        if moved is None or not os.path.isfile(moved):
            return None
        package = [os.path.dirname(moved)] if os.path.basename(moved) == "__init__.py" else None
        return importlib.util.spec_from_file_location(name, moved, submodule_search_locations=package)

    def _moved(self, file: str) -> str | None:
        """The same file in the copy; None for other files, and for those of the copy, which may be in the original."""
        file = os.path.realpath(file)
        if file.startswith(self._copy) or not file.startswith(self._original):
            return None
        return self._copy + file[len(self._original) :]
