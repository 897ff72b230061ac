"""Files that a data set opens again for each item, instead of once.

[{"file", "line", "function", "opens", "files", "batches"}]: a row for each line of the user's code that opens files
while a loader without workers builds a batch. `opens` and `files` are sums over `batches` batches; of one that is
opened several times for a batch, `files` counts one.
"""

from __future__ import annotations

import builtins
import io
import os
import threading
from collections import defaultdict
from contextlib import suppress
from typing import Any

from ..user_line import UserLine, user_line

BATCHES = 4  # that are looked at
MOST_LINES = 20
MOST_OPENS = 2_000  # of one line, for a batch: more are not counted


class OpenedFiles:
    """Takes the place of `open` while a batch is built. An audit hook would stay, and make each id() slow."""

    def __init__(self) -> None:
        self._thread: int | None = None  # that builds a batch now
        self._open = builtins.open  # what was there before
        self._now: dict[UserLine, list[Any]] = defaultdict(list)
        self._rows: dict[UserLine, list[int]] = defaultdict(lambda: [0, 0])
        self._batches = 0

    @property
    def done(self) -> bool:
        return self._batches >= BATCHES

    def begins(self) -> None:
        """This thread is about to build a batch."""
        if self._thread is None and builtins.open is io.open:  # else the script has an `open` of its own
            self._now.clear()
            self._thread, self._open = threading.get_ident(), builtins.open
            builtins.open = io.open = self.open

    def ends(self) -> None:
        if self._thread is None:
            return
        self._thread = None
        for module in (builtins, io):
            if module.open == self.open:
                module.open = self._open  # type: ignore[attr-defined]
        self._batches += 1
        for line, paths in self._now.items():
            if line in self._rows or len(self._rows) < MOST_LINES:
                row = self._rows[line]
                row[0] += len(paths)
                row[1] += len(set(paths))

    def document(self) -> list[dict[str, Any]]:
        return [
            {"file": file, "line": line, "function": function, "opens": opens, "files": files, "batches": self._batches}
            for (file, line, function), (opens, files) in self._rows.items()
        ]

    def open(self, file: Any, *arguments: Any, **options: Any) -> Any:
        """What goes wrong here is not the script's."""
        with suppress(Exception):
            if threading.get_ident() == self._thread and isinstance(file, (str, bytes, os.PathLike)):
                path, line = os.fspath(file), user_line()
                if line is not None and len(self._now[line]) < MOST_OPENS:
                    self._now[line].append(path)
        return self._open(file, *arguments, **options)
