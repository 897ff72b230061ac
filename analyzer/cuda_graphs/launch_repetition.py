"""Whether every step launches the same kernels in the same order, so that a CUDA graph could replay them."""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.launch_links import LaunchLinks
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import runtime_calls


class Repetition(Struct, frozen=True):
    """About the kernels that the steps launch; shares are of the steps. All zero if launches were not recorded."""

    kernels: float  # per step, median
    same_share: float  # steps that launch the same as the most common step: names, grids and order
    replayed_share: float  # of the kernels: those that graphs launch already


def find_repetition(trace: Trace, gpu: GpuWork, links: LaunchLinks, steps: Steps) -> Repetition:
    launch = links.launch
    rows = np.flatnonzero(gpu.is_kernel & (launch >= 0))
    at = trace.runtime.start[launch[rows]] if len(rows) else np.empty(0, np.int64)
    step = steps.host_step_of(at)
    inside = step >= 0
    rows, at, step = rows[inside], at[inside], step[inside]
    if not len(rows):
        return Repetition(0.0, 0.0, 0.0)
    order = np.lexsort((gpu.work.start[rows], at))
    rows, step = rows[order], step[order]
    names, grids = gpu.work.name[rows], gpu.work.grid[rows]
    edges = np.searchsorted(step, np.arange(steps.count + 1))
    parts = [slice(edges[i], edges[i + 1]) for i in range(steps.count)]  # a pass over the steps
    graphs = np.array([runtime_calls.is_graph_launch(name) for name in trace.names], bool)
    return Repetition(
        kernels=median(np.bincount(step, minlength=steps.count)),
        same_share=_most_common([names[part].tobytes() + grids[part].tobytes() for part in parts]),
        replayed_share=float(graphs[trace.runtime.name[launch[rows]]].mean()),
    )


def _most_common(keys: list[bytes]) -> float:
    """Share of the most frequent value."""
    return max(Counter(keys).values()) / len(keys)
