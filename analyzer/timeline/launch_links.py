"""Links GPU work to the call that launched it and to the operator around that call."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.tables.schema import I4, I8, RuntimeTable
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_tree import OP, RUNTIME, Slices


class LaunchLinks(Struct, frozen=True):
    """Columns parallel to `trace.gpu`, shape (len(gpu),); -1: unknown.

    Work whose launch is not in the file was launched before the file begins. A launch of a CUDA or HIP graph has many
    rows of work.
    """

    launch: I4  # row of trace.runtime
    launch_slice: I4  # row of Slices
    op: I4  # row of trace.ops: the innermost operator around the launch
    op_slice: I4  # row of Slices of that operator


def link(trace: Trace, slices: Slices) -> LaunchLinks:
    """Joins GPU work to runtime calls by correlation id, then to the operator that encloses the call on its thread.

    "External id" is not used: in NVIDIA traces of 2022-23 it repeats the correlation id.
    """
    launch = _by_correlation(trace.gpu.correlation, trace.runtime)
    launch_slice = np.full(len(launch), -1, np.int32)
    known = launch >= 0
    launch_slice[known] = slices.of(RUNTIME, len(trace.runtime))[launch[known]]
    op_slice = slices.ancestor(launch_slice, slices.kind == OP)
    op = np.where(op_slice >= 0, slices.row[np.maximum(op_slice, 0)] if len(slices) else -1, -1)
    return LaunchLinks(launch, launch_slice, op.astype(np.int32), op_slice)


def _by_correlation(wanted: I8, calls: RuntimeTable) -> I4:
    """Row of the call with each wanted id; -1: none. If there are several (a driver call in a runtime call), the
    outermost.
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
