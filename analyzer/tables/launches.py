"""Runtime calls: by name, and which launched which work of a device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from traceopt.analyzer.tables.schema import I4, I8, Mask, RuntimeTable
from traceopt.analyzer.tables.trace import Trace


def launch_rows(wanted: I8, calls: RuntimeTable) -> I4:
    """Row of the call with each wanted correlation id; -1: none. If there are several (a driver call in a runtime
    call), the outermost.
    """
    usable = np.flatnonzero(calls.correlation > 0)
    if not len(usable) or not len(wanted):
        return np.full(len(wanted), -1, np.int32)
    order = usable[np.argsort(calls.correlation[usable], kind="stable")]  # stable: the table is sorted by start
    ids, start = calls.correlation[order], calls.start[order]
    same = (ids[1:] == ids[:-1]) & (start[1:] == start[:-1])
    if same.any():
        tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
        order[tied] = order[tied][np.lexsort((-calls.duration[order[tied]], start[tied], ids[tied]))]
    at = np.searchsorted(ids, wanted)
    found = order[np.minimum(at, len(order) - 1)]
    return np.where((calls.correlation[found] == wanted) & (wanted > 0), found, -1).astype(np.int32)


def calls_named(trace: Trace, test: Callable[[str], bool]) -> Mask:
    """Runtime rows whose name passes the test."""
    passes = np.zeros(len(trace.names) + 1, bool)
    codes = np.flatnonzero(np.bincount(trace.runtime.name))
    passes[codes] = [test(trace.names[code]) for code in codes]
    return np.asarray(passes[trace.runtime.name])
