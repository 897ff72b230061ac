"""The device's side of a trace: which GPU, the kind of work in each row, and when the GPU was busy with what."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import Categorical, distinct, numbered
from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, intersect, merge, subtract, union
from traceopt.analyzer.tables.schema import F8, I8, KERNEL, MEMCPY, GpuTable, Mask
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.vocabulary.kernels.kernel_names import KernelClass, classify

MOST_DEVICES = 64  # a machine has fewer, but a damaged file may name any number


class GpuWork(Struct, frozen=True, dict=True):
    """The work of the process's devices, and when any of them was busy inside a window. Masks and arrays have shape
    (len(work),).
    """

    trace: Trace
    window: Intervals
    launch_window: Intervals  # when the steps launched the work that runs in the window
    copy_collectives: Mask | None = None  # rows of trace.gpu that are copies but belong to a collective

    @property
    def work(self) -> GpuTable:
        """All rows of trace.gpu, in order of start."""
        return self.trace.gpu

    @cached_property
    def devices(self) -> tuple[int, ...]:
        """The devices that worked in the window, the one with the most work first. Without any, those of the trace."""
        rows = np.flatnonzero(self.is_inside) if self.is_inside.any() else np.arange(len(self.work))
        devices, inverse = numbered(self.work.device[rows])
        busiest = np.argsort(-np.bincount(inverse, weights=self.work.duration[rows]), kind="stable")
        return tuple(devices[busiest[:MOST_DEVICES]].tolist())

    @property
    def device(self) -> int | None:
        """The device with the most work."""
        return next(iter(self.devices), None)

    @cached_property
    def computing(self) -> tuple[int, ...]:
        """The devices that compute in the window, the busiest first; others only copy or fill."""
        compute = self.work.device[self.is_compute & self.is_inside]
        return tuple(device for device in self.devices if (compute == device).any())

    @cached_property
    def busy_by_device(self) -> dict[int, Intervals]:
        """When each device works in the window."""
        if len(self.devices) < 2:
            return dict.fromkeys(self.devices, self.busy)
        return {device: self.area(self.work.device == device) for device in self.devices}

    @property
    def busy_ns(self) -> int:
        """The time in which the devices work, added up over them."""
        return sum(area.total for area in self.busy_by_device.values())

    @cached_property
    def own_share(self) -> F8 | float:
        """The part of its time that each row takes of the window: half of it while two devices work. So the times of
        work on several devices add up to no more than the window.
        """
        if len(self.devices) < 2:
            return 1.0
        spent = self._shared_time(self.work.start, self.work.end)
        return np.divide(spent, self.in_window, out=np.ones(len(self.work)), where=self.in_window > 0)

    @cached_property
    def step_ns(self) -> I8:
        """What each row takes of the window, ns: its time inside it, which devices that work at the same time share."""
        return np.asarray(np.rint(self.in_window * self.own_share), np.int64)

    def spent_ns(self, mask: Mask) -> float:
        """What the work of a mask takes of the window, ns. Streams of a device count once, and devices that work at the
        same time share it.
        """
        if len(self.devices) < 2:
            return float(self.area(mask).total)
        areas = [self.area(mask & (self.work.device == device)) for device in self.devices]
        return float(sum(self._shared_time(area.start, area.end).sum() for area in areas))

    def _shared_time(self, start: I8, end: I8) -> F8:
        """The time of each span of one device, of which each device that works at the same time has an equal part."""
        time, clock = self._device_clock
        first, last = (np.interp(edge - self.window.start[0], time, clock) for edge in (start, end))
        return np.asarray(last - first)

    @cached_property
    def _device_clock(self) -> tuple[I8, F8]:
        """Times since the window began, and a clock that runs half as fast while two devices work."""
        areas = self.busy_by_device.values()
        edge = np.concatenate([*(area.start for area in areas), *(area.end for area in areas)]) - self.window.start[0]
        order = np.argsort(edge, kind="stable")
        edge, working = edge[order], np.cumsum(np.repeat([1, -1], len(edge) // 2)[order])[:-1]
        passed = np.diff(edge) * (working > 0) / np.maximum(working, 1)
        return edge, np.append(0, np.cumsum(passed))

    def device_name(self, row: int) -> str:
        """The device of a row, with its number if there are several."""
        return "GPU" if len(self.devices) == 1 else f"GPU {self.work.device[row]}"

    @cached_property
    def _classes(self) -> tuple[list[KernelClass], npt.NDArray[np.int32]]:
        codes, inverse = distinct(self.work.name)
        return [classify(self.trace.names[code]) for code in codes], inverse.astype(np.int32)

    @cached_property
    def kind(self) -> Categorical:
        """Kind of each row, from the table in kernel_names.py; copies and fills are "memcpy" and "memset", but those of
        a collective are "collective".
        """
        classes, inverse = self._classes
        of_name = np.where(self.work.kind == MEMCPY, len(classes), len(classes) + 1)
        codes = np.where(self.work.kind == KERNEL, inverse, of_name).astype(np.int32)
        if self.copy_collectives is not None:
            codes[self.copy_collectives] = len(classes) + 2
        return Categorical([*(c.kind for c in classes), "memcpy", "memset", "collective"], codes)

    @cached_property
    def tensor_core(self) -> npt.NDArray[np.int8]:
        """1: uses Tensor Cores, 0: does not, -1: unknown."""
        classes, inverse = self._classes
        tri = [-1 if c.tensor_core is None else int(c.tensor_core) for c in classes]
        return np.array(tri, np.int8)[inverse] if len(self.work) else np.empty(0, np.int8)

    @cached_property
    def fused(self) -> Mask:
        """Fused kernels: Inductor's, fused attention, fused optimizers."""
        classes, inverse = self._classes
        return np.array([c.fused for c in classes], bool)[inverse] if len(self.work) else np.empty(0, bool)

    @cached_property
    def dtype(self) -> Categorical:
        """Type according to the kernel's name; "" if unknown."""
        classes, inverse = self._classes
        return Categorical([c.dtype or "" for c in classes], inverse)

    def of_class(self, test: Callable[[KernelClass], bool]) -> Mask:
        """The rows whose kernel class passes the test."""
        classes, inverse = self._classes
        return np.array([test(one) for one in classes] or [False], bool)[inverse]

    def class_of(self, row: int) -> KernelClass:
        classes, inverse = self._classes
        return classes[int(inverse[row])]

    @cached_property
    def in_window(self) -> npt.NDArray[np.int64]:
        """Duration of each row inside the window, ns."""
        return self.window.within(self.work.start, self.work.end)

    @cached_property
    def is_inside(self) -> Mask:
        """Whether a part of the row is in the window. A file with whole microseconds has work that takes none."""
        takes_none = self.work.duration == 0
        return np.asarray((self.in_window > 0) | (takes_none & self.window.contains(self.work.start)))

    @cached_property
    def is_kernel(self) -> Mask:
        return np.asarray(self.work.kind == KERNEL)

    @cached_property
    def is_communication(self) -> Mask:
        return self.kind.among("collective")

    @cached_property
    def is_compute(self) -> Mask:
        return self.is_kernel & ~self.is_communication

    @cached_property
    def is_copy(self) -> Mask:
        """Copies and fills that belong to no collective."""
        return ~self.is_kernel & ~self.is_communication

    def area(self, mask: Mask) -> Intervals:
        """When any row of the mask ran, clipped to the window."""
        if not len(self.work):
            return EMPTY
        return intersect(union(self.work.start[mask], self.work.end_of(mask)), self.window)

    @cached_property
    def compute(self) -> Intervals:
        return self.area(self.is_compute)

    @cached_property
    def communication(self) -> Intervals:
        return self.area(self.is_communication)

    @cached_property
    def copies(self) -> Intervals:
        return self.area(self.is_copy)

    @cached_property
    def exposed_communication(self) -> Intervals:
        """Collectives not overlapped by compute."""
        return subtract(self.communication, self.compute)

    @cached_property
    def exposed_copies(self) -> Intervals:
        """Copies and fills not overlapped by compute or communication."""
        return subtract(self.copies, merge(self.compute, self.communication))

    @cached_property
    def busy(self) -> Intervals:
        """Union of kernels, copies and fills; nothing else is GPU work."""
        return merge(self.compute, self.communication, self.copies)

    @cached_property
    def idle(self) -> Intervals:
        return subtract(self.window, self.busy)
