"""Finds the source file of a trace location; reads only files inside the folders that the user named."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from traceopt.rules.fixes.patches.source import PythonSource, UnclearError

MAX_BYTES = 1 << 20


def find_source(name: str, folders: Sequence[Path]) -> PythonSource | None:
    """The file that a trace calls `name`, in the first folder that has it; None if no folder has it.

    The profiler shortens paths to an entry of sys.path ("pkg/model.py") or leaves them complete, perhaps from another
    machine. The longest end of the path that exists in a folder is used. If folders are nested, the path in the patch
    is relative to the outer one. A trace is untrusted: nothing outside the folders is read, no link out of them is
    followed, and only plain Python files of up to 1 MB are opened.
    """
    try:
        roots = [folder.resolve(strict=True) for folder in folders]
        for root in roots:
            if (file := locate(name, root)) is not None:
                outer = min((root for root in roots if file.is_relative_to(root)), key=lambda root: len(root.parts))
                return _read(file, file.relative_to(outer).as_posix())
    except (OSError, ValueError, RuntimeError, UnclearError):  # unreadable; not UTF-8, a NUL; a cycle of links
        pass
    return None


def locate(name: str, root: Path) -> Path | None:
    """The file in the resolved folder `root` that a trace calls `name`, or None.

    Raises OSError, ValueError or RuntimeError for an invalid or inaccessible name.
    """
    for candidate in _candidates(name, root):
        try:
            file = candidate.resolve(strict=True)
        except FileNotFoundError:
            continue
        if file.is_relative_to(root):
            return file
    return None


def _candidates(name: str, root: Path) -> Iterator[Path]:
    path = PurePosixPath(name)
    parts = [part for part in path.parts if part not in ("/", "~")]
    if not name.endswith(".py") or ".." in parts:
        return
    if path.is_absolute():
        yield Path(name)
    for first in range(len(parts)):
        yield root.joinpath(*parts[first:])


def _read(file: Path, path: str) -> PythonSource:
    """Raises UnclearError if it is not a plain source file, or if a patch would have to quote its name."""
    about = file.stat()
    if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_BYTES or file.suffix != ".py":
        raise UnclearError("not a source file")
    if not path.isprintable() or any(char in path for char in '"\\'):
        raise UnclearError("the name would need quotes")
    with file.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise UnclearError("the file is growing")
    return PythonSource.parse(path, data.decode())
