"""Waits in the operating system that explain why a thread launches nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.intervals import union
from traceopt.analyzer.tables.schema import I8

_SHORTEST_NS = 100_000  # shorter waits belong to dispatch


def waits_of_launching_threads(
    found: Mapping[str, I8], cuda: Mapping[str, I8], waits: Sequence[int]
) -> npt.NDArray[np.int64]:
    """Rows of `found` that are long waits of threads that call CUDA. Both have start, duration and globalTid; `waits`
    are the `nameId`s of functions that wait.

    Left out: a wait inside a call of CUDA, and a wait during which any thread calls CUDA. Autograd's thread launches
    the backward pass while the main thread waits.
    """
    start, end = found["start"], found["start"] + found["duration"]
    calls = np.sort(cuda["start"])
    kept = (found["duration"] >= _SHORTEST_NS) & np.isin(found["nameId"], waits)
    kept &= np.searchsorted(calls, start) == np.searchsorted(calls, end)
    rows = np.flatnonzero(kept)
    launching = np.zeros(len(rows), bool)
    for thread in np.unique(found["globalTid"][rows]).tolist():
        own, mine = cuda["globalTid"] == thread, found["globalTid"][rows] == thread
        busy = union(cuda["start"][own], cuda["start"][own] + cuda["duration"][own])
        launching[mine] = own.any() and busy.within(start[rows[mine]], end[rows[mine]]) == 0
    return rows[launching]
