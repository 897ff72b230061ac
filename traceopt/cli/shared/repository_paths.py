"""Turns the file names in a result document into paths relative to the root of the repository."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from traceopt.analyzer.vocabulary.python_frames import is_library_file
from traceopt.result.document import Result
from traceopt.result.finding import Finding, Location
from traceopt.rules.fixes.patches.files import locate

PACKAGES = "site-packages"


def in_repository(result: Result, source: Sequence[Path] = ()) -> Result:
    """The document with file names of findings relative to the root of the repository that contains the current folder.

    Files are looked up in the folders of `source`, and then in the repository. A file in neither keeps its name. One of
    an installed package is named below site-packages/, so that no code host looks for it in the repository.
    """
    root = _root(Path.cwd())
    names: dict[str, str] = {}

    def moved(place: Location | None) -> Location | None:
        if place is None:
            return None
        if place.file not in names:
            names[place.file] = _path(place.file, [*source, root], root)
        return replace(place, file=names[place.file])

    def with_paths(finding: Finding) -> Finding:
        locations = [place for place in map(moved, finding.locations) if place is not None]
        evidence = [replace(row, location=moved(row.location)) for row in finding.evidence]
        return replace(finding, locations=locations, evidence=evidence)

    return replace(result, findings=[with_paths(finding) for finding in result.findings])


def _root(folder: Path) -> Path:
    """The root of the git repository that contains the folder, or else the folder itself."""
    folder = folder.resolve()
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder)


def _path(name: str, folders: Sequence[Path], root: Path) -> str:
    for folder in folders:
        try:
            file = locate(name, folder.resolve())
        except (OSError, ValueError, RuntimeError):  # not a valid file name
            continue
        if file is not None and file.is_relative_to(root):
            return file.relative_to(root).as_posix()
    inside_packages = is_library_file(name) and not re.match(r"[/~<]|[A-Za-z]:", name)
    return f"{PACKAGES}/{name}" if inside_packages else name
