"""Paths as reports show them. Reports are attached to pull requests, so they name no folder outside the working one."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

from msgspec.structs import replace

from traceopt.result.document import Result

_CONTAINERS = (".zip", ".sqlite", ".sqlite.gz")  # files that are read like a folder


def shown_path(path: str, folder: str) -> str:
    """A path below `folder` relative to it; of any other absolute path, only the name. URLs and relative paths stay."""
    if "://" in path or not os.path.isabs(path):
        return path
    inside = os.path.relpath(path, folder)
    if not inside.startswith(os.pardir):
        return inside
    parts = PurePath(path).parts
    start = next((at for at, part in enumerate(parts) if part.lower().endswith(_CONTAINERS)), len(parts) - 1)
    return "/".join(parts[start:])


def with_shown_paths(result: Result) -> Result:
    """The document with such paths. JSON keeps the whole ones, which `traceopt compare` and `try` read again."""
    try:
        folder = str(Path.cwd())
    except OSError:  # it was removed
        folder = os.sep
    run, snapshot = result.run, result.memory_snapshot
    files = [replace(file, path=shown_path(file.path, folder)) for file in run.files]
    return replace(
        result,
        run=replace(run, paths=[shown_path(path, folder) for path in run.paths], files=files),
        ranks=[replace(row, path=shown_path(row.path, folder)) for row in result.ranks],
        memory_snapshot=None if snapshot is None else replace(snapshot, file=shown_path(snapshot.file, folder)),
    )
