"""Files that a data set opens again for each item, instead of once.

[{"file", "line", "function", "opens", "files", "batches"}]: a row for each line of the user's code that opens files
while a loader without workers builds a batch. `opens` and `files` are sums over `batches` batches; of one that is
opened several times for a batch, `files` counts one.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from typing import Any

from .user_line import UserLine, user_line

BATCHES = 4  # that are looked at
MOST_LINES = 20
MOST_OPENS = 2_000  # of a batch that are told apart


class OpenedFiles:
    """Python tells an audit hook about each file that it opens. A hook cannot be removed: later it does nothing."""

    def __init__(self) -> None:
        self._hooked = False
        self._thread: int | None = None  # that builds a batch now
        self._now: dict[UserLine, list[Any]] = defaultdict(list)
        self._rows: dict[UserLine, list[int]] = defaultdict(lambda: [0, 0])
        self._batches = 0

    @property
    def done(self) -> bool:
        return self._batches >= BATCHES

    def begins(self) -> None:
        """This thread is about to build a batch."""
        if not self._hooked:
            self._hooked = True
            sys.addaudithook(self._hook)
        self._now.clear()
        self._thread = threading.get_ident()

    def ends(self) -> None:
        if self._thread is None:
            return
        self._thread = None
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

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Whatever it raises, the script would get."""
        if self._thread is None or event != "open" or threading.get_ident() != self._thread:
            return
        try:
            path, line = arguments[0], user_line()
            if isinstance(path, (str, bytes)) and line is not None and len(self._now[line]) < MOST_OPENS:
                self._now[line].append(path)
        except Exception:
            self._thread = None
