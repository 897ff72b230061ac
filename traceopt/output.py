"""Writes output: to stdout, to the progress line on stderr, and to files that are replaced in one step.

A failure is an OutputError with the reason. If the reader of stdout closes the pipe, the program ends silently.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import click

from traceopt.errors import OutputError, one_line

EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE, as a shell reports a command whose reader went away


class StderrProgress:
    """A line on stderr. The next line replaces it, and it is erased at the end."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._shown = False

    def __enter__(self) -> Callable[[str], None]:
        return self

    def __call__(self, text: str) -> None:
        if self._enabled:
            self._shown = True
            click.echo(f"\r\x1b[2K{one_line(text, 78)}", nl=False, err=True, color=True)

    def __exit__(self, *_: object) -> None:
        if self._shown:
            click.echo("\r\x1b[2K", nl=False, err=True, color=True)


def open_missing_streams() -> None:
    """Replaces closed standard streams, so that output to them is discarded.

    Otherwise they are None, and the next opened file gets their file descriptors.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # open until the program ends


def emit(output: str | bytes) -> None:
    """Writes to stdout. If its reader has closed the pipe, the program ends silently. A full disk is an OutputError."""
    data = output if isinstance(output, bytes) else output.encode(sys.stdout.encoding, "backslashreplace")
    rest = memoryview(data)
    try:
        while rest:  # with PYTHONUNBUFFERED, a write may be partial
            rest = rest[sys.stdout.buffer.write(rest) :]
        sys.stdout.buffer.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise the flush at exit fails again
        if isinstance(error, BrokenPipeError):
            raise SystemExit(EXIT_BROKEN_PIPE) from None
        raise OutputError(f"cannot write to standard output: {error.strerror}") from error


def check_writable(path: Path) -> None:
    """Raises OutputError if the path cannot be written. Call it before the analysis, not only after it."""
    folder = path.parent
    if "\0" in str(path):
        raise OutputError(f"cannot write {path}: a file name cannot contain a NUL character")
    if path.is_dir():
        raise OutputError(f"cannot write {path}: it is a folder; pass a file name")
    if not folder.is_dir():
        raise OutputError(f"cannot write {path}: the folder {folder} does not exist")
    if not os.access(path if path.exists() and not path.is_file() else folder, os.W_OK):
        raise OutputError(f"cannot write {path}: no permission to write in {folder}")


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces the file in one step: if that fails, the old file is still there. Raises OutputError."""
    import tempfile

    target = Path(os.path.realpath(path))  # a link stays a link
    temporary = None
    try:
        # /dev/stdout, /dev/null or a pipe: never replace these by renaming
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name[:40]}.", dir=target.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
