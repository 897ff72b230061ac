"""What slow steps do that others do not: more kernels, or a function that no other step calls."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_sites import CallSites
from traceopt.analyzer.timeline.call_tree import PYTHON
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.result.finding import Location

MOST = 0.5  # of what slow steps take longer: a function that takes less does not explain it


def find_slow_step_function(regions: Regions, sites: CallSites, steps: Steps, slow: I8) -> Location | None:
    """The outermost function of the program that runs in slow steps (indices) and in no other. None if none explains
    most of what they take longer: by the time of the host, or of the device's work that it launches.
    """
    slices = regions.slices
    frames = np.flatnonzero(sites.code_frames & (slices.kind == PYTHON) & (slices.thread == steps.thread))
    step = steps.host_step_of(slices.start[frames])
    is_slow = np.isin(step, slow)
    usual = slices.name[frames[(step >= 0) & ~is_slow]]
    rare = frames[is_slow & ~np.isin(slices.name[frames], usual)]
    rows = slices.outermost(slices.mask(rare)).astype(np.int64)
    if not len(rows):
        return None
    time = np.maximum(slices.duration_of(rows), regions.work_ns(rows))
    _, group = np.unique(slices.name[rows], return_inverse=True)
    total = np.bincount(group, weights=time)
    longest = rows[group == total.argmax()]
    longer = steps.duration[slow].sum() - len(slow) * np.median(np.delete(steps.duration, slow))
    if total.max() < MOST * longer:
        return None
    return sites.most_frequent(longest)


def kernels_per_step(gpu: GpuWork, steps: Steps) -> I8:
    """Shape (steps,)."""
    step = steps.step_of(gpu.work.start[gpu.is_kernel])
    return np.bincount(step[step >= 0], minlength=steps.count)
