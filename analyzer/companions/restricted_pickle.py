"""Reads untrusted pickles: built-in containers, str, bytes, int, float, bool and None. Nothing is ever called.

Python's own unpickler reads a dump of the flight recorder ten times as fast as a reader in Python would. Memory
snapshots need such a reader (`memory_snapshot/plain_pickle.py`): as Python objects they take six times as much memory.
"""

from __future__ import annotations

import pickle
from typing import IO, Any, NoReturn

from traceopt.errors import InputError

_BAD = (
    pickle.UnpicklingError,
    EOFError,
    AttributeError,
    ImportError,
    IndexError,
    KeyError,
    MemoryError,
    OverflowError,
    RecursionError,
    TypeError,
    UnicodeDecodeError,
    ValueError,
)


class _Restricted(pickle.Unpickler):
    """Every opcode that makes an object of a class, or calls something, first has to find that class here."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}; only plain data is read")

    def persistent_load(self, pid: Any) -> NoReturn:  # noqa: ARG002
        raise pickle.UnpicklingError("it refers to objects outside the file; only plain data is read")


def load(stream: IO[bytes], label: str) -> Any:
    """The value of a pickle. Raises InputError, in one line that begins with `label`, for anything but plain data."""
    try:
        return _Restricted(stream).load()
    except _BAD as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"{label} cannot be read: {reason[:200]}") from None
