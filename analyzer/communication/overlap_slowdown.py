"""How much longer kernels take while they overlap a collective."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import group_rows, split
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.launch_links import LaunchLinks
from traceopt.analyzer.work.tensor_core_work import TensorCoreWork

OVERLAPPED, ALONE = 0.2, 0.02  # share of a kernel's time under a collective: at least, and at most


class OverlappedKernel(Struct, frozen=True):
    """One kind of kernel (name, grid and operator sizes): how much longer its overlapped runs take than its usual run
    alone, over the window. Times in ns.
    """

    rows: I8  # the overlapped runs: rows of the device's work
    runs_alone: int
    excess_ns: float  # of the overlapped runs, over the median run alone
    overlap_ns: float  # of the overlapped runs, under a collective
    alone_ns: float  # median run alone
    overlapped_ns: float  # median overlapped run

    @property
    def slowdown(self) -> float:
        """Time under a collective as a multiple of what the same work would take alone."""
        return self.overlap_ns / max(1.0, self.overlap_ns - self.excess_ns)


def find_overlapped_kernels(
    gpu: GpuWork, links: LaunchLinks, tensor_core_work: TensorCoreWork
) -> list[OverlappedKernel]:
    """The kinds of kernel that ran under a collective and also alone, largest extra time first."""
    ops = gpu.trace.ops
    rows = np.flatnonzero(gpu.is_compute & gpu.is_inside & (gpu.work.duration > 0))
    op = links.op[rows]
    sizes = ops.dims[np.maximum(op, 0)] if len(ops) else np.full(len(rows), -1)
    sizes = np.where(op >= 0, sizes, -1)
    known = (sizes >= 0) | ~tensor_core_work.eligible[rows]  # a matmul's name and grid do not determine its K
    rows, sizes = rows[known], sizes[known]
    first, group = group_rows(gpu.work.name[rows], *gpu.work.grid[rows].T, sizes)
    start, duration = gpu.work.start[rows], gpu.work.duration[rows]
    overlap = gpu.communication.within(start, start + duration)
    parts = (np.flatnonzero(part) for part in (overlap >= OVERLAPPED * duration, overlap <= ALONE * duration))
    runs = (split(part, group[part], len(first)) for part in parts)
    out = []
    for mine, others in zip(*runs, strict=True):  # kinds of kernel, not events
        if not len(mine) or not len(others):
            continue
        usual = median(duration[others])
        out.append(
            OverlappedKernel(
                rows=rows[mine],
                runs_alone=len(others),
                excess_ns=float((duration[mine] - usual).sum()),
                overlap_ns=float(overlap[mine].sum()),
                alone_ns=usual,
                overlapped_ns=median(duration[mine]),
            )
        )
    return sorted(out, key=lambda one: -one.excess_ns)
