"""What each kernel reaches: FLOP/s or bytes/s, and the part of the device's peak that limits it (the roofline).

A kernel has a rate if it is the only one that its operator launched for the work, so that the operator's FLOP or bytes
are its own. A convolution's backward pass launches one kernel per gradient, and the gradients cost the same.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import group_rows
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.schema import KERNEL, MEMCPY
from traceopt.analyzer.vocabulary.accelerator import Accelerator
from traceopt.analyzer.vocabulary.architectures import DTYPE_BYTES
from traceopt.analyzer.vocabulary.formulas.byte_formulas import least_bytes
from traceopt.result.sections.work_rows import KernelBound

ENOUGH = 0.9  # of a kernel's time must have known FLOP or bytes
# Of the peak, as in the section "GPU Speed Of Light Throughput" of Nsight Compute: below it on both sides, neither peak
# holds a kernel up.
NEAR_PEAK = 0.6
F8 = npt.NDArray[np.float64]


class Rate(Struct, frozen=True):
    """`peak_share` is the part of the peak of `limit`; above 1 the data came from the cache. None: unknown."""

    tflops: float | None
    gb_per_s: float | None
    peak_share: float | None
    limit: Literal["compute", "memory"] | None
    dram_share: float | None = None  # the next two: measured by hardware counters
    tensor_share: float | None = None

    @property
    def bound(self) -> KernelBound | None:
        """The peak that holds the kernel up. None if a rate is unknown that could be the limit, or above its peak."""
        if self.peak_share is None or self.limit is None or self.peak_share > 1:
            return None
        if self.peak_share >= NEAR_PEAK:
            return self.limit
        return "neither" if self.gb_per_s is not None else None


class RoofPoint(Struct, frozen=True):
    """Where work with known FLOP and bytes is in the roofline (Williams et al., "Roofline", 2009). None: unknown."""

    gb_per_s: float | None = None  # if each tensor is read or written once
    intensity: float | None = None  # FLOP per byte
    roof: Literal["compute", "memory"] | None = None  # the peak that is lower at this intensity
    roof_share: float | None = None  # part of it that the work reaches


def roof_point(
    tflops: float | None, elements: float, flops: float, dtype: str | None, on: Accelerator | None
) -> RoofPoint:
    """The point of work that reaches `tflops`, does `flops` and moves at least so many numbers of a type."""
    width = DTYPE_BYTES.get(dtype or "")
    if tflops is None or width is None or not elements > 0 or not flops > 0:
        return RoofPoint()
    intensity = flops / (elements * width)
    gb_per_s = tflops * 1e3 / intensity
    peak, bandwidth = (on.peak(dtype or ""), on.hbm_gb_per_s) if on is not None else (None, None)
    if not peak or not bandwidth:
        return RoofPoint(gb_per_s, intensity)
    by_memory = intensity * bandwidth / 1e3
    return RoofPoint(gb_per_s, intensity, "memory" if by_memory < peak else "compute", tflops / min(by_memory, peak))


class KernelRates(Struct, frozen=True, dict=True):
    """FLOP and bytes of each row of the device's work; NaN where they are unknown."""

    facts: Facts

    def of(self, rows: npt.NDArray[np.integer]) -> Rate:
        """The rate over some rows of the device's work, which have the same kernel name."""
        flops, moved = self._per_us(self._flops, rows), self._per_us(self._bytes, rows)
        tflops = None if flops is None else flops / 1e6
        gb_per_s = None if moved is None else moved / 1e3
        accelerator = self.facts.device.accelerator
        shares: list[tuple[float, Literal["compute", "memory"]]] = []
        if accelerator is not None and tflops is not None:
            dtype = self.facts.flops.dtype_of(int(rows[self.facts.gpu.work.duration[rows].argmax()]))
            peak = accelerator.peak(dtype) if dtype else None
            shares += [(tflops / peak, "compute")] if peak else []
        on_device = bool((self.facts.gpu.work.kind[rows] == KERNEL).all())  # copies are limited by the bus as well
        if accelerator is not None and gb_per_s is not None and accelerator.hbm_gb_per_s and on_device:
            shares.append((gb_per_s / accelerator.hbm_gb_per_s, "memory"))
        share, limit = max(shares, default=(None, None))
        return Rate(tflops, gb_per_s, share, limit, *self._measured(rows))

    def _measured(self, rows: npt.NDArray[np.integer]) -> tuple[float | None, float | None]:
        counters = self.facts.measured_counters
        if counters is None:
            return None, None
        work = np.zeros(len(self.facts.gpu.work), bool)
        work[rows] = True
        return counters.dram_during(work), counters.tensor_active_during(work)

    def _per_us(self, amount: F8, rows: npt.NDArray[np.integer]) -> float | None:
        duration = self.facts.gpu.work.duration[rows]
        known = ~np.isnan(amount[rows])
        time_ns = int(duration[known].sum())
        if not time_ns or time_ns < ENOUGH * int(duration.sum()):
            return None
        return float(amount[rows][known].sum()) / (time_ns / 1e3)

    @cached_property
    def _flops(self) -> F8:
        facts = self.facts
        owner, counted = facts.flops.owner, facts.flops.counted
        out = np.full(len(owner), np.nan)
        mine = np.flatnonzero(facts.tensor_core_work.eligible & (owner >= 0))
        if len(mine):
            kernels = np.bincount(owner[mine], minlength=len(counted.slices))
            whole = kernels[owner[mine]] == counted.products[owner[mine]]
            mine = mine[whole]
            out[mine] = counted.executed[owner[mine]] / counted.products[owner[mine]]
        return out

    @cached_property
    def _bytes(self) -> F8:
        facts = self.facts
        work = facts.gpu.work
        out = np.where((work.kind == MEMCPY) & (work.bytes > 0), work.bytes, np.nan)
        op = facts.links.op
        mine = np.flatnonzero(facts.gpu.is_kernel & (op >= 0))
        mine = mine[facts.trace.sized[op[mine]] & ~np.isin(op[mine], facts.gemms.too_fast)]
        if len(mine):
            alone = np.bincount(op[mine], minlength=len(facts.trace.ops))[op[mine]] == 1
            mine = mine[alone]
            out[mine] = self._of_operators(op[mine])
        return out

    def _of_operators(self, rows: npt.NDArray[np.integer]) -> F8:
        """Least bytes of operators: rows of trace.ops."""
        trace, ops = self.facts.trace, self.facts.trace.ops
        if not len(rows):
            return np.empty(0)
        first, group = group_rows(ops.name[rows], ops.dims[rows], ops.types[rows])
        columns = (column[rows[first]].tolist() for column in (ops.name, ops.dims, ops.types))
        found = [
            least_bytes(trace.names[name], _json(trace.texts[dims]), _json(trace.texts[types])) if types >= 0 else None
            for name, dims, types in zip(*columns, strict=True)
        ]
        return np.array([np.nan if one is None else one for one in found])[group]


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
