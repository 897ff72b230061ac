"""The calls that launch the GPU work: which ones, how far into the step, and from which user function."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values, numbered
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_sites import CallSites
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.launch_links import LaunchLinks
from traceopt.analyzer.timeline.steps import Steps


class LaunchCalls(Struct, frozen=True, dict=True):
    """The calls that launch the device's work. Call arrays are rows of `trace.runtime`, each listed once."""

    gpu: GpuWork
    links: LaunchLinks
    call_sites: CallSites
    steps: Steps

    @cached_property
    def _launch(self) -> I8:
        """For each row of the device's work, the call that launched it; -1: unknown."""
        return self.links.launch.astype(np.int64)

    @cached_property
    def calls(self) -> I8:
        """The calls that launched kernels, copies or fills. A launch of a graph counts once."""
        return distinct_values(self._launch[self._launch >= 0])

    @cached_property
    def kernel_calls(self) -> I8:
        """The calls that launched kernels."""
        return distinct_values(self._launch[self.gpu.is_kernel & (self._launch >= 0)])

    @cached_property
    def _kernel_starts(self) -> I8:
        return np.sort(self.gpu.trace.runtime.start[self._launch[self.gpu.is_kernel & (self._launch >= 0)]])

    def count_before(self, time: I8) -> I8:
        """Kernels that are launched before each time. Shape (len(time),)."""
        return np.searchsorted(self._kernel_starts, time)

    def share_before(self, time: I8) -> npt.NDArray[np.float64]:
        """Share (0..1) of its step's kernels launched before each time; NaN outside the steps. Shape (len(time),)."""
        step = self.steps.host_step_of(time)
        first, last = self.count_before(self.steps.host_start), self.count_before(self.steps.host_end)
        before = self.count_before(time) - first[step]
        return np.where(step >= 0, before / np.maximum(1, last[step] - first[step]), np.nan)

    def function_with_share(self, share: float) -> int | None:
        """A slice of the innermost function, of the user or a model, with at least this share of the training thread's
        launches: of all such functions, the one with the least time. None if there is none or no stack.
        """
        slices, runtime, thread = self.call_sites.slices, self.gpu.trace.runtime, self.steps.thread
        started = np.sort(runtime.start[self.calls[runtime.thread[self.calls] == thread]])
        frames = np.flatnonzero(self.call_sites.code_frames & (slices.thread == thread))
        if not len(frames) or not len(started):
            return None
        start, end = slices.start[frames], slices.end[frames]
        _, function = numbered(slices.name[frames])
        launches = np.bincount(function, weights=np.searchsorted(started, end) - np.searchsorted(started, start))
        enough = np.flatnonzero(launches >= share * len(started))
        if not len(enough):
            return None
        time = np.bincount(function, weights=end - start)
        return int(frames[function == enough[time[enough].argmin()]][0])
