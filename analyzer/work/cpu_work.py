"""The operators of a CPU-only run: the time and the FLOP/s of its matmuls, convolutions and attention, and the rest."""

from __future__ import annotations

from functools import cached_property
from math import prod

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct, group_rows, split
from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, intersect, merge, subtract
from traceopt.analyzer.run_log.cpu import CpuPeaks
from traceopt.analyzer.tables.json_values import listed
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.architectures import DTYPE_BYTES
from traceopt.analyzer.vocabulary.formulas.flop_formulas import is_counted
from traceopt.analyzer.vocabulary.formulas.norm_results import results_of_norm
from traceopt.analyzer.vocabulary.gemm_ops import gemm_shape, operand_type
from traceopt.analyzer.work.flops import Flops
from traceopt.analyzer.work.tiny_ops import input_elements

MAX_PEAK_SHARE = 1.1  # an operator that is faster than the measured peak shows that the peak is not that of this run
THREADED_ELEMENTS = 1 << 16  # of a tensor: torch gives each thread at least half as many
# PyTorch reduces along the last dimension with vector instructions, in 2 to 5 ns a number. Along another one, its norm
# calls a function for each number: 80 to 170 ns a result (torch 2.13, x86, two to 32 numbers a result).
_NORM_OF_ONE_NS = 40
_SMALL_SHARE = 0.01  # of the step: such operators do not question the peak


class CpuOperator(Struct, frozen=True):
    """Calls of one operator with tensors of one dtype, inside the window, callees included. `rows` are slices, longest
    first; `gflops` is the rate that those reach whose shapes fit their times, None for operators without FLOP.
    """

    name: str
    dtype: str | None
    duration_ns: int
    gflops: float | None
    rows: I8

    @property
    def is_convolution(self) -> bool:
        return self.name in op_names.CONVOLUTION_OPS

    @property
    def is_attention(self) -> bool:
        return op_names.is_attention(self.name)

    @property
    def is_matmul(self) -> bool:
        """A matmul or attention."""
        return is_counted(self.name) and not self.is_convolution


class CpuWork(Struct, frozen=True, dict=True):
    """What the operators of the training thread computed. `model_work`: when it did the work of the model, not that of
    a data set; `measured`: what the CPU reaches, None if unknown.
    """

    flops: Flops
    regions: Regions
    steps: Steps
    model_work: Intervals
    measured: CpuPeaks | None

    @cached_property
    def heavy(self) -> list[CpuOperator]:
        """Matmuls, convolutions and attention of the model with known FLOP, by operator and dtype. Most time first."""
        at, executed = self.flops.counted.slices, self.flops.counted.executed
        keep = self._mine[at] & self.model_work.contains(self.regions.slices.start[at])
        at, executed = at[keep], executed[keep]
        if not len(at):
            return []
        trace, slices = self.regions.trace, self.regions.slices
        types = trace.ops.types[slices.row[at]]
        first, group = group_rows(slices.name[at], types)
        names = [trace.names[code] for code in slices.name[at[first]].tolist()]
        dtypes = [_dtype(name, code, trace.texts) for name, code in zip(names, types[first].tolist(), strict=True)]
        kinds = sorted(set(zip(names, dtypes, strict=True)), key=str)
        kind = np.array([kinds.index(pair) for pair in zip(names, dtypes, strict=True)])[group]
        duration = slices.duration_of(at)
        fits = trace.sized[slices.row[at]]
        found = []
        for (name, dtype), mine in zip(kinds, split(np.arange(len(at)), kind, len(kinds)), strict=True):
            longest = mine[np.argsort(-duration[mine], kind="stable")]
            flops, rated_ns = executed[mine[fits[mine]]].sum(), duration[mine[fits[mine]]].sum()
            gflops = float(flops / rated_ns) if rated_ns and flops else None
            found.append(CpuOperator(name, dtype, int(duration[mine].sum()), gflops, at[longest]))
        return sorted(found, key=lambda operator: -operator.duration_ns)

    @cached_property
    def light(self) -> tuple[I8, I8]:
        """The other operators of the model: slices, and the time of each without the operators that it calls, ns."""
        slices = self.regions.slices
        heavy = slices.mask(self.flops.counted.slices)
        own_ns = slices.end - slices.start
        child = np.flatnonzero(slices.parent >= 0)
        np.subtract.at(own_ns, slices.parent[child].astype(np.intp), (slices.end - slices.start)[child])
        mine = self._mine & self.model_work.contains(slices.start)
        rows = np.flatnonzero(mine & (slices.kind == OP) & (slices.nearest(heavy) < 0) & (own_ns > 0))
        return rows, own_ns[rows]

    @cached_property
    def casts_to_double(self) -> I8:
        """Casts to FP64: rows of slices, in order."""
        trace, slices = self.regions.trace, self.regions.slices
        rows = np.flatnonzero(self._mine & self.regions.named(op_names.CAST_CALL.__eq__, OP))
        values, group = distinct(trace.ops.concrete[slices.row[rows]] + 1)
        wanted = [op_names.casts_to_double(listed(trace.texts[code - 1]) if code else None) for code in values.tolist()]
        found: I8 = rows[np.array(wanted or [False])[group]].astype(np.int64)
        return found

    @cached_property
    def slow_norms(self) -> CpuOperator | None:
        """Euclidean norms along another dimension than the last that take longer than vector instructions do, as one
        operator; None if there are none.
        """
        trace, slices = self.regions.trace, self.regions.slices
        rows = np.flatnonzero(self._mine & self.regions.named(op_names.VECTOR_NORM.__eq__, OP)).astype(np.int64)
        ops = slices.row[rows]
        known = (trace.ops.dims[ops] >= 0) & (trace.ops.concrete[ops] >= 0)
        rows, ops = rows[known], ops[known]
        if not len(rows):
            return None
        first, group = group_rows(trace.ops.dims[ops], trace.ops.concrete[ops])
        results = [
            results_of_norm(listed(trace.texts[dims]), listed(trace.texts[values]))
            for dims, values in zip(trace.ops.dims[ops[first]], trace.ops.concrete[ops[first]], strict=True)
        ]
        number, duration = np.array(results)[group], slices.duration_of(rows)
        slow = np.flatnonzero((number > 0) & (duration >= _NORM_OF_ONE_NS * number))
        longest = slow[np.argsort(-duration[slow], kind="stable")]
        total = int(duration[slow].sum())
        return CpuOperator(op_names.VECTOR_NORM, None, total, None, rows[longest]) if total else None

    @cached_property
    def _mine(self) -> Mask:
        """Slices of the training thread, and of threads that run its backward pass, inside the window."""
        slices = self.regions.slices
        mine = (slices.thread == self.steps.thread) | (slices.nearest(self.regions.backward) >= 0)
        return np.asarray(mine & self.steps.window.contains(slices.start))

    def elements(self, operator: CpuOperator) -> I8:
        """Elements of both factors and the result of each matmul of `operator.rows`; 0 where no shape was recorded."""
        trace = self.regions.trace
        ops = self.regions.slices.row[operator.rows]
        first, group = group_rows(trace.ops.dims[ops])
        counts = [_elements(operator.name, trace.texts[code]) for code in trace.ops.dims[ops[first]].tolist()]
        return np.array(counts, np.int64)[group]

    def area(self, operators: list[CpuOperator]) -> Intervals:
        """When these operators ran."""
        if not operators:
            return EMPTY
        rows = np.concatenate([operator.rows for operator in operators])
        slices = self.regions.slices
        return intersect(slices.area_of(rows), self.steps.window)

    @cached_property
    def threaded(self) -> Intervals:
        """When operators ran that divide their work among threads: heavy ones, and those on large tensors."""
        slices, named = self.regions.slices, self.regions.named
        rows = np.flatnonzero(self._mine & (slices.kind == OP))
        large = rows[input_elements(self.regions, rows) >= THREADED_ELEMENTS]
        random = rows[named(op_names.RANDOM.__contains__, OP)[rows]]
        area = subtract(slices.area_of(large), slices.area_of(random))
        return intersect(merge(area, self.area(self.heavy)), self.steps.window)

    @cached_property
    def peaks(self) -> CpuPeaks | None:
        """The measured peaks; None as well if an operator of this run is faster, because they are not this run's."""
        least_ns = _SMALL_SHARE * self.steps.window_ns
        long = [operator for operator in self.heavy if operator.duration_ns >= least_ns]
        shares = [_share(operator, self.measured) for operator in long] if self.measured is not None else []
        return None if any(share is not None and share > MAX_PEAK_SHARE for share in shares) else self.measured

    def peak_share(self, operator: CpuOperator) -> float | None:
        """The operator's rate as a share of the measured rate of its kind and dtype, at most 1; None if unknown."""
        share = _share(operator, self.peaks) if self.peaks is not None else None
        return None if share is None else min(1.0, share)

    @cached_property
    def heavy_peak_share(self) -> float | None:
        """The share of the heavy operators' time that they would take at the measured peak; None if the peak of one is
        unknown.
        """
        shares = [self.peak_share(operator) for operator in self.heavy]
        known = [share for share in shares if share is not None]
        if not shares or len(known) < len(shares):
            return None
        durations = [operator.duration_ns for operator in self.heavy]
        ideal_ns = sum(ns * share for ns, share in zip(durations, known, strict=True))
        return ideal_ns / sum(durations)

    @cached_property
    def thin(self) -> CpuOperator | None:
        """Matmuls with so few rows or columns that reading the factors takes longer than multiplying, as one operator;
        None if there are none or the peaks are unknown.
        """
        peaks = self.peaks
        if peaks is None or not peaks.copy_gb_per_s:
            return None
        trace, slices = self.regions.trace, self.regions.slices
        found = []
        for operator in self.heavy:
            peak, size = peaks.matmul.get(operator.dtype or ""), DTYPE_BYTES.get(operator.dtype or "")
            if not peak or not size or not operator.is_matmul:
                continue
            ops = slices.row[operator.rows]
            first, group = group_rows(trace.ops.dims[ops])
            slow = [
                _is_thin(operator.name, trace.texts[code], size, peak / peaks.copy_gb_per_s)
                for code in trace.ops.dims[ops[first]].tolist()
            ]
            found.append(operator.rows[np.array(slow)[group]])
        rows = np.concatenate(found) if found else np.empty(0, np.int64)
        if not len(rows):
            return None
        duration = slices.duration_of(rows)
        rows = rows[np.argsort(-duration, kind="stable")]
        name = trace.names[int(slices.name[rows[0]])]
        return CpuOperator(name, None, int(duration.sum()), None, rows)


def _share(operator: CpuOperator, peaks: CpuPeaks) -> float | None:
    """The operator's rate divided by the peak: matmuls in its dtype, for FP32 convolutions also those measured."""
    rates = [peaks.matmul.get(operator.dtype or "")]
    if operator.is_convolution and operator.dtype == "fp32":
        rates += peaks.convolution.values()
    peak = max((rate for rate in rates if rate), default=None)
    return operator.gflops / peak if peak and operator.gflops else None


def _is_thin(name: str, dims: str, size: float, flop_per_byte: float) -> bool:
    shape = gemm_shape(name, listed(dims))
    if shape is None:
        return False
    return 2.0 * prod(shape) < flop_per_byte * size * _elements(name, dims)


def _elements(name: str, dims: str) -> int:
    shape = gemm_shape(name, listed(dims))
    if shape is None:
        return 0
    m, n, k, batch = shape
    return batch * (m * k + k * n + m * n)


def _dtype(name: str, types: int, texts: list[str]) -> str | None:
    """The dtype in which an operator computes, from the profiler's "Input type"."""
    stored = listed(texts[types]) if types >= 0 else None
    if stored is None:
        return None
    factor = operand_type(name, stored)
    if factor is not None:
        return op_names.profiler_dtype(factor)
    known = (op_names.profiler_dtype(str(text)) for text in stored)
    return next((dtype for dtype in known if dtype is not None), None)
