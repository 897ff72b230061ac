"""Requests for a recording, from `traceopt record` or SIGUSR2: a file in the control folder.

The agent loads this at the start of every process, so it loads almost nothing. It does without open(), which the script
may have replaced.
"""

from __future__ import annotations

import os
from contextlib import suppress

TAKEN = "requests"  # exists if the run takes requests; the launcher makes it
REQUEST = "request"


def ask(control: str) -> None:
    """Raises OSError."""
    write(os.path.join(control, REQUEST), "")


def asked(control: str) -> bool:
    return os.path.exists(os.path.join(control, REQUEST))


def answered(control: str) -> None:
    with suppress(OSError):
        os.unlink(os.path.join(control, REQUEST))


def take_signals(control: str) -> None:
    """If the run takes requests, SIGUSR2 is one from now on, unless the script handles the signal itself."""
    if not os.path.exists(os.path.join(control, TAKEN)):
        return
    import atexit
    import signal

    number = getattr(signal, "SIGUSR2", None)
    if number is None:
        return

    def on_signal(*_: object) -> None:
        with suppress(Exception):
            ask(control)

    with suppress(ValueError):  # not in the main thread
        signal.signal(number, on_signal)
        atexit.register(signal.signal, number, signal.SIG_IGN)  # the interpreter would restore the default, which kills


def write(path: str, text: str) -> None:
    """Raises OSError."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def read(path: str) -> str | None:
    """None if it cannot be read."""
    with suppress(OSError, ValueError):
        file = os.open(path, os.O_RDONLY)
        try:
            return os.read(file, 1024).decode()
        finally:
            os.close(file)
    return None
