"""FLOP in the window, of the model and recomputed, and their share of the device's peak."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import group_rows, longest_of_group
from traceopt.analyzer.tables.json_values import listed
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_tree import OP, Slices
from traceopt.analyzer.timeline.device import TraceDevice
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.launch_links import LaunchLinks
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.vocabulary.formulas.flop_formulas import OpFlops, convolution_output, is_counted, op_flops
from traceopt.analyzer.work.tensor_core_work import TensorCoreWork

ENOUGH = 0.9  # of the product time must be known; with less, a share of the peak would be a guess


class CountedOperators(Struct, frozen=True):
    """Operators whose FLOP are known, none nested in another. Arrays have shape (operators,)."""

    slices: I8  # rows of Slices
    model: npt.NDArray[np.float64]  # FLOP that the model needs
    executed: npt.NDArray[np.float64]  # FLOP that the kernels execute
    products: npt.NDArray[np.int64]  # equally large products that `executed` consists of
    elements: npt.NDArray[np.float64]  # numbers that they read and write at least; NaN: not known


class Flops(Struct, frozen=True, dict=True):
    """FLOP of the operators that launched work inside the window; 0 if no shapes were recorded.

    Operators are counted by launch time: the GPU may run some steps behind and then does the work of earlier steps.
    """

    trace: Trace
    slices: Slices
    links: LaunchLinks
    gpu: GpuWork
    device: TraceDevice
    regions: Regions
    tensor_core_work: TensorCoreWork
    too_fast: I8  # rows of trace.ops whose shapes are impossible in their time

    @cached_property
    def counted(self) -> CountedOperators:
        """The operators whose FLOP follow from their shapes."""
        ops = self.trace.ops
        named = np.array([is_counted(name) for name in self.trace.names] or [False])
        rows = np.flatnonzero(named[ops.name] & (ops.dims >= 0)) if len(ops) else np.empty(0, np.int64)
        first, group = group_rows(ops.name[rows], ops.dims[rows], ops.types[rows], ops.concrete[rows])
        distinct = rows[first]
        columns = (ops.name, ops.dims, ops.types, ops.concrete)
        names, dims, types, concrete = (column[distinct].tolist() for column in columns)
        outputs = self._convolution_outputs(names, dims)
        found = [
            self._of_signature(*call, outputs) for call in zip(names, dims, types, concrete, strict=True)
        ]  # distinct calls only
        known = np.array([one is not None for one in found], bool)[group]
        rows, group = rows[known], group[known]
        at = self.slices.of(OP, len(ops))[rows].astype(np.int64)
        counted = self.slices.mask(at)
        outermost = self.slices.mask(self.slices.outermost(counted))
        outer = outermost[at]
        model = np.array([one.model if one else 0.0 for one in found])[group[outer]]
        executed = np.array([one.executed if one else 0.0 for one in found])[group[outer]]
        again = self.slices.ancestor(at[outer], self.regions.recompute) >= 0
        products = np.array([one.products if one else 0 for one in found], np.int64)[group[outer]]
        elements = np.array([one.elements if one else 0.0 for one in found])[group[outer]]
        return CountedOperators(at[outer], np.where(again, 0.0, model), executed, products, elements)

    def _convolution_outputs(self, names: list[int], dims: list[int]) -> dict[tuple[object, object], tuple[int, ...]]:
        """Output size of convolutions by input and weight, from their backward calls."""
        calls = [
            convolution_output(self.trace.names[name], listed(self.trace.texts[size]))
            for name, size in zip(names, dims, strict=True)
        ]
        return {(call[0], call[1]): call[2] for call in calls if call is not None}

    def _of_signature(
        self, name: int, dims: int, types: int, concrete: int, outputs: dict[tuple[object, object], tuple[int, ...]]
    ) -> OpFlops | None:
        shapes = listed(self.trace.texts[dims])
        values = listed(self.trace.texts[concrete]) if concrete >= 0 else None
        stored = listed(self.trace.texts[types]) if types >= 0 else None
        known = op_flops(self.trace.names[name], shapes, values, types=stored)
        if known is None and isinstance(shapes, list) and len(shapes) > 1:
            size = outputs.get((_key(shapes[0]), _key(shapes[1])))
            return op_flops(self.trace.names[name], shapes, values, size) if size else None
        return known

    @cached_property
    def owner(self) -> I8:
        """For every row of the device's work, the index of the counted operator that launched it; -1: none whose shapes
        fit its time.
        """
        at = self.counted.slices
        fits = self.trace.sized[self.slices.row[at]]
        fits &= ~np.isin(self.slices.row[at], self.too_fast)
        index = np.full(len(self.slices) + 1, -1, np.int32)
        index[at[fits]] = np.flatnonzero(fits)
        owner = self.slices.ancestor(self.links.launch_slice, index[:-1] >= 0)
        return np.where(self.gpu.is_kernel, index[owner], -1)

    @cached_property
    def _ran(self) -> npt.NDArray[np.bool_]:
        """Which counted operators launched a kernel inside the window."""
        at = self.counted.slices
        ran = np.zeros(len(at), bool)
        ran[self.owner[self.owner >= 0]] = True
        return ran & self.gpu.launch_window.contains(self.slices.start[at])

    @property
    def model(self) -> float:
        """FLOP that the model needs, without recomputation."""
        return float(self.counted.model[self._ran].sum())

    @property
    def executed(self) -> float:
        """FLOP that the kernels executed, including recomputation."""
        return float(self.counted.executed[self._ran].sum())

    @cached_property
    def covered_share(self) -> float:
        """Share of the time of matmuls, convolutions and attention whose FLOP are known.

        Work launched before the file begins does not count.
        """
        launched = self.tensor_core_work.eligible & (self.links.launch >= 0)
        duration = self.gpu.work.duration
        total = int(duration[launched].sum())
        return int(duration[launched & (self.owner >= 0)].sum()) / total if total else 0.0

    @property
    def known(self) -> bool:
        return self.executed > 0 and self.covered_share >= ENOUGH

    @cached_property
    def dtype(self) -> str | None:
        """The type of most of the FLOP."""
        work = np.flatnonzero(self.tensor_core_work.eligible & (self.owner >= 0))
        if not len(work):
            return None
        longest = longest_of_group(self.gpu.work.duration[work], self.owner[work], len(self.counted.slices))
        owner = np.flatnonzero(longest >= 0)
        row = work[longest[owner]]
        names = sorted(set(self.tensor_core_work.dtype.values))
        place = np.array([names.index(name) for name in self.tensor_core_work.dtype.values])
        group = place[self.tensor_core_work.dtype.codes[row]]
        calls, flops = np.bincount(group), np.bincount(group, weights=self.counted.executed[owner])
        return names[int(np.where(calls > 0, flops, -1).argmax())] or None

    def dtype_of(self, row: int) -> str | None:
        """The type in which a row of the device's work multiplies."""
        return self.tensor_core_work.dtype.at(row) or None

    @property
    def peak_tflops(self) -> float | None:
        accelerator = self.device.accelerator
        return accelerator.peak(self.dtype) if accelerator and self.dtype else None

    @property
    def mfu(self) -> float | None:
        """Model FLOP utilization over the window (Chowdhery et al., "PaLM", 2022, appendix B)."""
        return self._share(self.model)

    @property
    def hfu(self) -> float | None:
        """Hardware FLOP utilization, which includes recomputation."""
        return self._share(self.executed)

    def _share(self, flops: float) -> float | None:
        """Share of the dense peak of all devices that compute; None if the peak or too much of the FLOP is unknown."""
        peak = self.peak_tflops
        time = self.gpu.window.total * len(self.gpu.computing)
        return flops / time / 1e3 / peak if peak and self.known and time else None


def _key(size: object) -> object:
    return tuple(size) if isinstance(size, list) and all(isinstance(n, int) for n in size) else None
