"""The folders that the MCP server may read; every path that an assistant names is checked against them."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from traceopt.analyzer.reading.source_search import find_sources
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.errors import InputError, one_line

MOST_SHOWN = 100  # characters of a path in an error


class Roots:
    """Resolved folders. A relative path is looked up in each of them, in order."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Raises InputError for a folder that does not exist."""
        for folder in folders:
            if not folder.is_dir():
                raise InputError(f"no such folder: {one_line(str(folder))}")
        self.folders = tuple(folder.resolve() for folder in folders)

    def path(self, text: str) -> Path:
        """The resolved file or folder that `text` names. Raises InputError if it is missing or outside the roots."""
        for candidate in self._candidates(text):
            if _exists(candidate):
                return self.checked(candidate, text)
        raise InputError(f"no such file or folder under the roots: {one_line(text, MOST_SHOWN)}")

    def paths(self, text: str) -> list[Path]:
        """The same for a path or a glob, sorted. Raises InputError."""
        if not glob.has_magic(text):
            return [self.path(text)]
        for pattern in self._candidates(text):
            found = sorted(glob.glob(str(pattern), recursive=True))
            if found:
                return [self.checked(Path(match), text) for match in found]
        raise InputError(f"nothing matches {one_line(text, MOST_SHOWN)} under the roots")

    def sources(self, paths: Sequence[str]) -> list[TraceSource]:
        """The files to read in checked paths. Raises InputError if a link leads out of the roots."""
        found = find_sources(paths)
        sources = [*found.sources, *(file.source for file in found.companions)]
        for source in sources:
            self.checked(Path(source.place), source.label)
        return sources

    def folder(self, text: str | None) -> Path:
        """A folder under the roots; the first root if none is named. Raises InputError."""
        folder = self.folders[0] if text is None else self.path(text)
        if not folder.is_dir():
            raise InputError(f"not a folder: {one_line(str(text), MOST_SHOWN)}")
        return folder

    def checked(self, path: Path, text: str) -> Path:
        """The path with all links resolved. Raises InputError, naming only `text`, if that is outside the roots."""
        resolved = path.resolve()
        if not self._inside(resolved):
            raise InputError(f"{one_line(text, MOST_SHOWN)} is outside the folders that this server may read (--root)")
        return resolved

    def _candidates(self, text: str) -> list[Path]:
        """Paths inside the roots that `text` may mean, links not followed. Raises InputError if there is none.

        Paths outside are never looked up, so no answer says whether they exist.
        """
        if not text or "\0" in text or "://" in text:
            raise InputError(f"not a path under the roots: {one_line(text, MOST_SHOWN) or 'an empty path'}")
        meant = [Path(os.path.normpath(folder / text)) for folder in self.folders]
        inside = [path for path in meant if self._inside(path)]
        if not inside:
            raise InputError(f"{one_line(text, MOST_SHOWN)} is outside the folders that this server may read (--root)")
        return inside

    def _inside(self, path: Path) -> bool:
        return any(path.is_relative_to(folder) for folder in self.folders)


def _exists(path: Path) -> bool:
    """False for a name that no file can have, such as one that is too long."""
    try:
        return path.exists()
    except OSError:
        return False
