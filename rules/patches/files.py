"""From a place in a trace to a source file that may be read: one inside the folders the user named, nothing else."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from traceopt.rules.patches.source import PythonSource, UnclearError

MAX_BYTES = 1 << 20


def find_source(name: str, folders: Sequence[Path]) -> PythonSource | None:
    """The file that a trace calls `name`, in the first folder that has it; None where none does.

    The profiler cuts paths at an entry of sys.path ("pkg/model.py") or leaves them whole, perhaps of another machine:
    the longest end of the path that a folder has is taken. Of folders that lie in each other the outer one counts for
    the path in the patch. A trace is untrusted: nothing outside of the folders is read, no link out of them followed,
    nothing but plain Python files of up to 1 MB opened.
    """
    try:
        roots = [folder.resolve(strict=True) for folder in folders]
        for root in roots:
            if (file := locate(name, root)) is not None:
                outer = min((one for one in roots if file.is_relative_to(one)), key=lambda one: len(one.parts))
                return _read(file, file.relative_to(outer).as_posix())
    except (OSError, ValueError, RuntimeError, UnclearError):  # unreadable; not UTF-8, a NUL; links in a circle
        pass
    return None


def locate(name: str, root: Path) -> Path | None:
    """The file in the resolved folder `root` that a trace calls `name`; raises OSError, ValueError or RuntimeError for
    a name that no file can have, or one that may not be looked for.
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
    """Raises UnclearError for what is no plain file of UTF-8 text, or has a name that a patch would have to quote."""
    about = file.stat()
    if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_BYTES or file.suffix != ".py":
        raise UnclearError("not a source file")
    if not path.isprintable() or any(char in path for char in '"\\'):
        raise UnclearError("a name to be quoted")
    with file.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise UnclearError("a file that grows")
    return PythonSource.parse(path, data.decode())
