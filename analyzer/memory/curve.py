"""Device memory over time, where it was recorded."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import Intervals
from traceopt.analyzer.tables.schema import I8, Mask, MemoryTable
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_tree import OP, Slices
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import library_frames, op_names, runtime_calls

CPU_DEVICE = 0  # c10::DeviceType
MIN_TENSORS = 20  # with fewer new tensors, all of them may be the first of their size
EMPTIED_SHARE = 0.25  # of the driver's frees: if empty_cache() makes so many, it has to go first
UNCACHED_SHARE = 0.9  # of the new tensors; a few may be on the CPU


class DeviceMemory(Struct, frozen=True):
    """Samples of the device with the highest peak inside the window (of the CPU in a CPU-only run)."""

    time: I8
    allocated: I8
    reserved: I8  # -1: not recorded
    device_type: int
    rows: I8  # of trace.memory: all samples of the device, inside and outside the window
    allocated_before: int | None = None  # the first sample

    @property
    def peak_allocated(self) -> int | None:
        return int(self.allocated.max()) if len(self.allocated) else None

    @property
    def peak_reserved(self) -> int | None:
        return int(self.reserved.max()) if len(self.reserved) and self.reserved.max() > 0 else None

    def lowest_by_step(self, steps: Steps) -> I8:
        """The lowest allocated bytes in each step that has samples, in order of time."""
        step = steps.host_step_of(self.time)
        inside = step >= 0
        known, first = np.unique(step[inside], return_index=True)
        return np.minimum.reduceat(self.allocated[inside], first) if len(known) else np.empty(0, np.int64)

    def peak_by_step(self, steps: Steps) -> I8:
        """The highest allocated bytes in each step; -1 for a step without samples. Shape (steps,)."""
        step = steps.host_step_of(self.time)
        peak = np.full(steps.count, -1)
        np.maximum.at(peak, step[step >= 0], self.allocated[step >= 0])
        return peak

    def curve(self, start: int, end: int, points: int = 500) -> tuple[I8, I8, I8]:
        """Samples in [start, end), reduced to the minimum and maximum of each of points/2 buckets, with the value at
        `start` in front of them.
        """
        inside = np.flatnonzero((self.time >= start) & (self.time < end))
        if len(inside) > points:
            bucket = (self.time[inside] - start) * (points // 2) // max(1, end - start)
            order = np.lexsort((self.allocated[inside], bucket))
            first = np.flatnonzero(np.diff(bucket[order], prepend=-1))
            last = np.append(first[1:] - 1, len(order) - 1)
            inside = distinct_values(inside[order[np.concatenate((first, last))]])
        earlier = np.flatnonzero(self.time < start)
        held = earlier[self.time[earlier].argmax() :][:1] if len(earlier) else earlier
        rows = np.concatenate((held, inside))
        time, allocated, reserved = np.maximum(self.time[rows], start), self.allocated[rows], self.reserved[rows]
        if self.allocated_before is None or len(held) or not len(inside):
            return time, allocated, reserved
        return np.append(start, time), np.append(self.allocated_before, allocated), np.append(reserved[:1], reserved)


def find_memory(trace: Trace, steps: Steps, gpu: bool) -> DeviceMemory | None:
    """The memory curve; None if totals were not recorded (profile_memory off, or the 2021 format, which has only
    sizes).
    """
    table = trace.memory
    usable = _samples_of(table, gpu)
    if not len(usable) or not table.allocated[usable].any():
        return None
    if gpu:
        peaks = peak_by_gpu(table)
        usable = usable[table.device[usable] == max(peaks, key=lambda gpu: peaks[gpu])]
    rows = usable[steps.host_window.contains(table.time[usable])]
    return _samples(table, rows if len(rows) else usable, usable)


def peak_by_gpu(table: MemoryTable) -> dict[int, int]:
    """The highest allocated bytes of each GPU with recorded totals."""
    rows = _samples_of(table, gpu=True)
    devices = table.device[rows]
    return {device: int(table.allocated[rows[devices == device]].max()) for device in distinct_values(devices).tolist()}


def _samples_of(table: MemoryTable, gpu: bool) -> npt.NDArray[np.intp]:
    """The rows with totals of GPUs, or of the CPU."""
    return np.flatnonzero(((table.device_type != CPU_DEVICE) == gpu) & (table.allocated >= 0))


def _samples(table: MemoryTable, rows: I8, all_rows: I8) -> DeviceMemory:
    kind = int(table.device_type[rows[0]])
    first = rows[table.time[rows].argmin()]
    before = min(max(0, int(table.allocated[first]) - int(table.bytes[first])), np.iinfo(np.int64).max)
    return DeviceMemory(table.time[rows], table.allocated[rows], table.reserved[rows], kind, all_rows, before)


def find_retries(trace: Trace, slices: Slices, calls: I8) -> I8:
    """The driver allocation calls (slices, in order of thread and time) that failed at first.

    The caching allocator asks the driver for a block. If there is none, it frees its cache inside the operator that
    needs the block. Other frees come from empty_cache(), outside any operator.
    """
    if len(calls) < 2:
        return calls[:0]
    freed = np.array([_is_free(name) for name in trace.names], bool)[slices.name[calls]]
    op = slices.ancestor(calls, slices.kind == OP)
    failed = ~freed[:-1] & freed[1:] & (op[:-1] == op[1:]) & (op[:-1] >= 0)
    return calls[np.flatnonzero(failed)]


class Allocator(Struct, frozen=True):
    """What the calls of the driver and the frames tell about PyTorch's caching allocator."""

    is_off: bool  # next to every new tensor of the steps asks the driver for memory
    is_emptied: bool | None  # torch.cuda.empty_cache() is called; None: no Python frames were recorded


def find_allocator(trace: Trace, slices: Slices, calls: I8, window: Intervals) -> Allocator:
    """`calls` are the driver allocation calls, rows of slices; `window` is the host's time in the steps.

    An emptied cache still serves most tensors, so that it is told from one that is switched off.
    """
    allocates = np.array([op_names.is_tensor_allocation(name) for name in trace.names] or [False], bool)
    tensors = (slices.kind == OP) & allocates[slices.name] & window.contains(slices.start)
    asking, count = distinct_values(slices.ancestor(calls, tensors)), int(tensors.sum())
    is_off = count >= MIN_TENSORS and int((asking >= 0).sum()) >= UNCACHED_SHARE * count
    emptied = any(library_frames.is_empty_cache_frame(trace.names[code]) for code in distinct_values(trace.python.name))
    return Allocator(is_off, emptied if len(trace.python) else None)


def find_cache_emptying(trace: Trace, slices: Slices, calls: I8, empties: Mask, steps: Steps) -> Mask:
    """Calls of torch.cuda.empty_cache(), if most steps make one and they are behind many of the driver's frees; else
    none. `empties`: all of its calls (slices). `calls`: those of the driver's allocator, rows of slices.
    """
    frees = calls[np.array([_is_free(name) for name in trace.names] or [False], bool)[slices.name[calls]]]
    frees = frees[steps.host_window.contains(slices.start[frees])]
    inside = frees[slices.ancestor(frees, empties) >= 0]
    emptied_steps = len(distinct_values(steps.host_step_of(slices.start[inside])))
    often = emptied_steps > 0.5 * steps.count and len(inside) >= EMPTIED_SHARE * len(frees)
    return empties if often else np.zeros_like(empties)


def _is_free(name: str) -> bool:
    return runtime_calls.is_allocation(name) and ("Free" in name or "Release" in name or "Unmap" in name)
