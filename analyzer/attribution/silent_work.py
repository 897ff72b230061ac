"""Operators and calls in which a thread shows no event for long, and what it does there."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.columns import Columns
from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import Intervals, union
from traceopt.analyzer.attribution.first_calls import first_of_name
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import OP, PYTHON, RUNTIME
from traceopt.analyzer.timeline.regions import COMPUTES_NS, Regions
from traceopt.analyzer.vocabulary import op_names, runtime_calls, torch_compile
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.table import (
    CAUSES,
    COMPILE,
    CPU_OP,
    HOST_COPY,
    LAUNCH,
    LONG_PYTHON,
    MODULE_LOAD,
    STARTUP,
    UNRECORDED,
)

# Longer than any dispatch. A host takes 4 to 140 us from one launch to the next (medians of 30 real traces), so a
# millisecond is the dispatch of seven launches on the slowest host, and of thirty on a usual one.
LONG_NS = 1_000_000
_SEVERAL = 3  # calls that tell what is usual


class Silence(Columns, frozen=True):
    """Stretches of a thread without an event. Arrays have shape (len,), times in ns."""

    start: I8
    end: I8
    slice: I8  # the innermost slice
    cause: I8  # index in CAUSES of what the thread does

    def of(self, cause: Cause) -> Silence:
        return self.take(self.cause == CAUSES.index(cause))

    @property
    def area(self) -> Intervals:
        return union(self.start, self.end)


class SilentWork(Struct, frozen=True, dict=True):
    """Names what the threads do while they are silent inside an operator or call."""

    regions: Regions

    def of(self, thread: int) -> Silence:
        """The long stretches in which a slice is open and none begins or ends, and those of operators that compute."""
        slices = self.regions.slices
        mine = slices.of_thread(thread)
        edges = np.sort(np.concatenate((slices.start[mine], slices.end[mine])))
        at = np.flatnonzero(np.diff(edges) >= COMPUTES_NS)
        row = slices.at(thread, edges[at]).astype(np.int64)
        at, row = at[row >= 0], row[row >= 0]
        start, end = edges[at], edges[at + 1]
        cause = self._cause(mine, row, end)
        computes = (cause == CAUSES.index(CPU_OP)) & ~self._launching[row]
        return Silence(start, end, row, cause).take((end - start >= LONG_NS) | computes)

    def _cause(self, mine: slice, row: npt.NDArray[np.int64], end: I8) -> I8:
        """What the thread does in each stretch."""
        slices = self.regions.slices
        is_op = slices.kind[row] == OP
        following = np.minimum(mine.start + np.searchsorted(slices.start[mine], end), mine.stop - 1)
        causes = [LONG_PYTHON, HOST_COPY, COMPILE, STARTUP, STARTUP, MODULE_LOAD, CPU_OP, UNRECORDED]
        return np.select(
            [
                slices.kind[row] == PYTHON,
                self._copies[row],
                is_op & (self._jit[row] | self._jit[following]),
                is_op & self._first[row] & self._collective[row],
                is_op & self._allocating[row] & (end <= self._first_work_ns),
                is_op & self._first[row] & self._launching[row],
                is_op & self._namespaced[row] & ~self._stalls(row),
                slices.kind[row] != RUNTIME,
            ],
            [CAUSES.index(cause) for cause in causes],
            CAUSES.index(LAUNCH),
        )

    def _stalls(self, row: npt.NDArray[np.int64]) -> Mask:
        """Whether silent operators rather lost their core: those of a call that computes on the GPU, and the only
        silent one of several calls of the same name. Copies convert on the CPU what they copy to the GPU.
        """
        slices = self.regions.slices
        call = slices.ancestor(row, slices.mask(self._calls)).astype(np.int64)
        call = np.where(call >= 0, call, row)  # nodes of autograd, operators of other libraries
        silent = np.bincount(slices.name[distinct_values(call)], minlength=len(self.regions.trace.names))
        calls = np.bincount(slices.name[self._calls], minlength=len(silent))
        name = slices.name[call]
        return np.asarray(self._on_gpu[call] | ((silent[name] == 1) & (calls[name] >= _SEVERAL)))

    @cached_property
    def _calls(self) -> npt.NDArray[np.intp]:
        """The calls of PyTorch's operators, without those that an operator calls itself."""
        slices = self.regions.slices
        return slices.outermost(self.regions.named(lambda name: name.startswith("aten::"), OP))

    @cached_property
    def _on_gpu(self) -> Mask:
        """Slices that launch a kernel, a graph or a fill."""

        def computes(name: str) -> bool:
            return runtime_calls.is_launch(name) and not runtime_calls.is_copy(name)

        return self.regions.slices.encloses(self.regions.named(computes, RUNTIME))

    @cached_property
    def _first_work_ns(self) -> int:
        return int(self.regions.gpu.work.start.min(initial=np.iinfo(np.int64).max))

    @cached_property
    def _first(self) -> Mask:
        return first_of_name(self.regions.slices, OP)

    @cached_property
    def _launching(self) -> Mask:
        return self.regions.slices.encloses(self.regions.named(runtime_calls.is_launch, RUNTIME))

    @cached_property
    def _copies(self) -> Mask:
        return self.regions.named(runtime_calls.is_copy, RUNTIME)

    @cached_property
    def _jit(self) -> Mask:
        return self.regions.named(torch_compile.is_jit_compiled, OP)

    @cached_property
    def _collective(self) -> Mask:
        return self.regions.named(op_names.is_collective_annotation, OP)

    @cached_property
    def _allocating(self) -> Mask:
        return self.regions.named(lambda name: name.startswith("aten::empty"), OP)

    @cached_property
    def _namespaced(self) -> Mask:
        """Operators of a library. Names without a namespace are ranges that the program opened."""
        return self.regions.named(lambda name: "::" in name, OP)
