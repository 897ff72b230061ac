"""The threads of a file: a code for each pair of a process and a thread id, and their names."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.codes import Codes
from traceopt.analyzer.reading.event_types import number
from traceopt.analyzer.reading.growing_columns import Floats
from traceopt.analyzer.tables.schema import I4
from traceopt.analyzer.tables.trace import Thread

_TEXT_THREADS = -(1 << 40)  # process and thread ids that are strings are numbered downwards from here


class ThreadCodes:
    def __init__(self) -> None:
        self.texts: Codes[str] = Codes()  # ids that are strings
        self.codes: Codes[tuple[int, int]] = Codes()
        self.names: dict[tuple[float | str, float | str], str] = {}

    def number_of(self, value: float | str | None) -> float:
        """A process or thread id as a number; non-numeric strings are numbered in order of appearance."""
        parsed = number(value)
        if parsed == -1.0 and isinstance(value, str):  # only in 2021 files and from unusual writers
            return float(_TEXT_THREADS - self.texts.of(value))
        return parsed

    def encode(self, pids: Floats, tids: Floats) -> npt.NDArray[np.int32]:
        """A code for each (process, thread) pair. Rows of one thread are mostly consecutive in the file."""
        changes = (pids[1:] != pids[:-1]) | (tids[1:] != tids[:-1])
        borders = [0, *(np.flatnonzero(changes) + 1).tolist(), len(pids)] if len(pids) else [0]
        runs = borders[:-1]
        pairs = zip(map(int, pids[runs].tolist()), map(int, tids[runs].tolist()), strict=True)
        return np.repeat(self.codes.encode(pairs, len(runs)), np.diff(borders))

    def in_order(self) -> tuple[list[tuple[int, int]], I4]:
        """The sorted pairs, and the position of the pair of each code among them."""
        places = {pair: place for place, pair in enumerate(sorted(self.codes.values()))}
        return list(places), np.array([places[pair] for pair in self.codes.values()], np.int32)

    def described(self) -> list[Thread]:
        """The threads, in that order."""
        texts = self.texts.values()

        def original(code: int) -> int | str:
            place = _TEXT_THREADS - code
            return texts[place] if 0 <= place < len(texts) else code

        names = {(str(_whole(p)), str(_whole(t))): name for (p, t), name in self.names.items()}
        return [
            Thread(original(pid), original(tid), names.get((str(original(pid)), str(original(tid))), ""))
            for pid, tid in self.in_order()[0]
        ]


def name_in(args: msgspec.Raw) -> str:
    """The name that a metadata event gives to a process or a thread; "" if it gives none."""
    try:
        value = msgspec.json.decode(args)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return str(value.get("name", "")) if isinstance(value, dict) else ""


def _whole(value: float | str) -> int | str:
    return int(value) if isinstance(value, float) else value
