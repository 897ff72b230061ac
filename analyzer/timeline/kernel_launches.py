"""How kernels were launched: blocks, threads, registers, shared memory, occupancy, streams, and time in the queue."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.launch_links import LaunchLinks
from traceopt.analyzer.vocabulary import runtime_calls


class LaunchFigures(Struct, frozen=True):
    """Figures of several launches of one kernel; None if they were not recorded. Threads, registers and shared memory
    are those of the longest call.
    """

    threads: int | None  # per block
    registers: int | None  # per thread
    shared_bytes: int | None  # per block
    # The share of an SM's warps that the profiler estimates, as a mean over the time. It writes 0 if it cannot.
    occupancy: float | None
    blocks: float | None  # mean of all calls
    streams: list[int]
    queued_ns: float | None  # median time from the launch to the start of the kernel
    shortest_ns: int
    median_ns: float
    longest_ns: int


class KernelLaunches(Struct, frozen=True, dict=True):
    """Launch figures of rows of the device's work."""

    trace: Trace
    gpu: GpuWork
    links: LaunchLinks

    def of(self, rows: npt.NDArray[np.integer]) -> LaunchFigures:
        """`rows` must not be empty."""
        work = self.gpu.work
        duration = work.duration[rows]
        longest = int(rows[duration.argmax()])
        threads = work.block[longest]
        blocks, queued, estimated = self.blocks[rows], self.queued[rows], work.occupancy[rows]
        known = queued >= 0
        weights = np.maximum(duration, 1)
        known_at_all = estimated.min() >= 0 < estimated.max()
        return LaunchFigures(
            threads=int(threads.prod(dtype=np.int64)) if (threads > 0).all() else None,
            registers=_known(work.registers[longest]),
            shared_bytes=_known(work.shared_memory[longest]),
            occupancy=float(np.average(estimated, weights=weights)) / 100 if known_at_all else None,
            blocks=float(blocks.mean()) if blocks.min() > 0 else None,
            streams=distinct_values(work.stream[rows]).tolist(),
            queued_ns=median(queued[known]) if known.any() else None,
            shortest_ns=int(duration.min()),
            median_ns=median(duration),
            longest_ns=int(duration.max()),
        )

    @cached_property
    def blocks(self) -> I8:
        """Thread blocks (workgroups) of every row of the device's work, -1: not recorded."""
        work, runtime = self.gpu.work, self.trace.runtime
        grid = np.where((work.grid > 0).all(axis=1), work.grid.prod(axis=1, dtype=np.int64), -1)
        threads = np.where((work.block > 0).all(axis=1), work.block.prod(axis=1, dtype=np.int64), -1)
        launch = self.links.launch
        by_thread = np.array([runtime_calls.counts_threads(name) for name in self.trace.names] or [False])
        in_threads = (launch >= 0) & by_thread[runtime.name[np.maximum(launch, 0)]] if len(runtime) else launch > 0
        whole = np.where((grid > 0) & (threads > 0), -(-grid // np.maximum(threads, 1)), -1)
        return np.where(in_threads, whole, grid)

    @cached_property
    def queued(self) -> I8:
        """Time from the start of the launching call to the start of the work, ns; -1: the launch is not known."""
        launch = self.links.launch
        if not len(self.trace.runtime):
            return np.full(len(launch), -1, np.int64)
        waited = self.gpu.work.start - self.trace.runtime.start[np.maximum(launch, 0)]
        return np.where(launch >= 0, np.maximum(waited, 0), -1)


def _known(value: npt.NDArray[np.integer] | np.integer) -> int | None:
    return int(value) if value >= 0 else None
