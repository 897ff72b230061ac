"""Matrix products call by call, in the order in which the device ran them: adjacent ones, and ones that fill the
device.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import group_rows
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.kernel_launches import KernelLaunches
from traceopt.analyzer.work.gemms import Gemms, GemmShape

BETWEEN = ("copy", "memcpy", "memset", "layout")  # kinds that may be between two calls that could be merged


class GemmCalls(Struct, frozen=True, dict=True):
    """The calls launched in the window, whenever they ran, sorted by stream and time; arrays have shape (len,), times
    in ns.

    Only calls whose shape is in gemms.shapes, of which at least one call ran inside the window.
    """

    gemms: Gemms

    def _shape_of(self, ops: I8) -> I8:
        """Index of the shape for rows of trace.ops; -1: none."""
        firsts = np.array([shape.rows[0] for shape in self.gemms.shapes], np.int64)
        keys, group = group_rows(*self.gemms.signatures(np.concatenate((firsts, ops))))
        index = np.full(len(keys), -1, np.int64)
        index[group[: len(firsts)]] = np.arange(len(firsts))
        return index[group[len(firsts) :]]

    @cached_property
    def _work(self) -> I8:
        """Rows of the device's work that these calls launched, in order of start."""
        gemms, gpu = self.gemms, self.gemms.gpu
        launch = gemms.links.launch_slice
        at = gemms.slices.start[np.maximum(launch, 0)] if len(gemms.slices) else np.zeros(len(launch), np.int64)
        inside = (launch >= 0) & gpu.launch_window.contains(at) & (gemms.owner >= 0)
        work = np.flatnonzero(inside)
        return work[self._shape_of(gemms.owner[work]) >= 0]

    @cached_property
    def _calls(self) -> tuple[I8, I8, I8]:
        """For each call: the operator's row, and its first and last kernel in the device's work."""
        work, owner = self._work, self.gemms.owner[self._work]
        order = np.argsort(owner, kind="stable")
        rows, first = np.unique(owner[order], return_index=True)
        begin, end = work[order[first]], work[order[np.append(first[1:], len(order))[: len(first)] - 1]]
        by_time = np.lexsort((begin, self.gemms.gpu.work.queue[begin]))
        return rows[by_time], begin[by_time], end[by_time]

    def __len__(self) -> int:
        return len(self._calls[0])

    @property
    def row(self) -> I8:
        """Row of trace.ops."""
        return self._calls[0]

    @cached_property
    def shape(self) -> I8:
        """Index of each call's shape."""
        return self._shape_of(self.row)

    @cached_property
    def start(self) -> I8:
        return self.gemms.gpu.work.start[self._calls[1]]

    @cached_property
    def end(self) -> I8:
        return self.gemms.gpu.work.end_of(self._calls[2])

    @cached_property
    def busy_ns(self) -> I8:
        """Kernel time of each call."""
        weights = self.gemms.gpu.work.duration[self._work]
        total = np.bincount(self.gemms.owner[self._work], weights=weights, minlength=len(self.gemms.trace.ops))
        return total[self.row].astype(np.int64)

    @cached_property
    def blocks(self) -> I8:
        """Thread blocks of each call's largest kernel, -1: not recorded."""
        most = np.full(len(self.gemms.trace.ops), -1, np.int64)
        launches = KernelLaunches(self.gemms.trace, self.gemms.gpu, self.gemms.links)
        np.maximum.at(most, self.gemms.owner[self._work], launches.blocks[self._work])
        return most[self.row]

    @cached_property
    def follows(self) -> npt.NDArray[np.bool_]:
        """Whether only copies ran between a call and the previous one on its stream."""
        gpu = self.gemms.gpu
        _, first, last = self._calls
        order = np.lexsort((gpu.work.start, gpu.work.queue))
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        other = np.ones(len(order), bool)
        other[self._work] = False
        other &= ~gpu.kind.among(*BETWEEN)
        count = np.concatenate(([0], np.cumsum(other[order])))
        out = np.zeros(len(first), bool)
        if len(first) > 1:
            between = count[position[first[1:]]] - count[position[last[:-1]]]
            out[1:] = (between == 0) & (gpu.work.queue[first[1:]] == gpu.work.queue[first[:-1]])
        return out

    def runs(self, key: I8, least: int) -> list[I8]:
        """Runs of at least `least` adjacent calls with equal rows of `key`; indices of calls."""
        if not len(self):
            return []
        same = np.append(False, (key[1:] == key[:-1]).all(axis=1)) & self.follows
        run = np.cumsum(~same) - 1
        lengths = np.bincount(run)
        starts = np.concatenate(([0], np.cumsum(lengths)))
        return [np.arange(starts[i], starts[i + 1]) for i in np.flatnonzero(lengths >= least)]

    def of(self, call: int) -> GemmShape:
        return self.gemms.shapes[int(self.shape[call])]

    @cached_property
    def sizes(self) -> I8:
        """M, N, K, batch and a number for operator and type of each call. Shape (len, 5)."""
        kinds: dict[tuple[str, str], int] = {}
        rows = [(s.m, s.n, s.k, s.batch, kinds.setdefault((s.op, s.dtype), len(kinds))) for s in self.gemms.shapes]
        return np.array(rows, np.int64).reshape(-1, 5)[self.shape]
