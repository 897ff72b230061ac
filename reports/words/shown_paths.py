"""Paths as reports show them. Reports are attached to pull requests, so they name no folder outside the working one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePath

from msgspec.structs import replace

from traceopt.result.document import Result

_HOMES = ("home", "Users")  # their folders have the names of people
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


def shown_paths(paths: Sequence[str], folder: str) -> list[str]:
    """Several files of one folder elsewhere have its name, which says what they are: "logs/rank0.json"; never that of
    a home folder.
    """
    shown = [shown_path(path, folder) for path in paths]
    parents = {PurePath(path).parent for path in paths}
    if len(paths) < 2 or len(parents) > 1 or any("/" in path for path in shown):
        return shown
    [parent] = parents
    named = parent.name and parent not in (PurePath(folder), Path.home()) and parent.parent.name not in _HOMES
    return [f"{parent.name}/{path}" for path in shown] if named else shown


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
        run=replace(run, paths=shown_paths(run.paths, folder), files=files),
        ranks=[replace(row, path=shown_path(row.path, folder)) for row in result.ranks],
        memory_snapshot=None if snapshot is None else replace(snapshot, file=shown_path(snapshot.file, folder)),
    )
