"""The work of a stream runs in order, so none can go on after the next one has ended."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import numbered, split
from traceopt.analyzer.tables.schema import I8, KERNEL, MEMCPY, MEMSET, GpuTable, Mask
from traceopt.analyzer.tables.trace import TimeFault, Trace

_EARLY_START_NS = 20_000  # programmatic dependent launch: a kernel starts this much before the one before has ended
_MAX_EXCESS = 0.01  # of the work's time; 0 in real traces
_MAX_CUT = 0.05  # of the work's time: with more of it, the idle time is not known
_MAX_CUTS = 0.05  # of the work: where more is too long, some of what fits before the next work is too long as well
_MOST_OVERLAP = 0.5  # of the pairs: if a longer duration than possible is the rule, the unit is another
_UNIT = 1_000  # from ns to us
_SHORTEST_NS = 500  # kernels take longer: 639 ns at least in real traces
_MAX_SHORT = 0.1  # of the kernels: if more are so short, none is real


class _Pairs(Struct, frozen=True):
    """Work and the next of its stream that is of another launch, as rows of the table: graphs may run in parallel."""

    first: npt.NDArray[np.intp]
    second: npt.NDArray[np.intp]

    def overlap(self, start: I8, duration: I8) -> I8:
        """How long the first still runs when the second has started; negative if it has ended."""
        return start[self.first] + duration[self.first] - start[self.second]

    def are_impossible(self, start: I8, duration: I8) -> bool:
        """Whether work goes on after the next has ended, for a measurable part of the time."""
        excess = self.overlap(start, duration) - duration[self.second]
        return bool(excess[excess > _EARLY_START_NS].sum() > _MAX_EXCESS * duration.sum())


def in_stream_order(trace: Trace) -> tuple[Trace, list[TimeFault]]:
    """The trace with durations of the GPU's work that can be: in the unit of the other times, and cut where the next
    work of the stream starts.
    """
    gpu = trace.gpu
    pairs = _pairs(gpu)
    too_short = _too_short(gpu, gpu.duration)
    if not pairs.are_impossible(gpu.start, gpu.duration):
        kernels = int((gpu.kind == KERNEL).sum())
        return trace, [TimeFault("unit", False, too_short, kernels)] if too_short > _MAX_SHORT * kernels else []
    overlap = pairs.overlap(gpu.start, gpu.duration)
    whole = np.where(_in_nanoseconds(gpu, pairs, overlap), gpu.duration // _UNIT, gpu.duration)
    if not _too_short(gpu, whole) and not pairs.are_impossible(gpu.start, whole):
        scaled = int((whole != gpu.duration).sum())
        return _with(trace, whole), [TimeFault("unit", True, scaled, len(gpu))]
    cut = pairs.first[overlap > 0]
    duration = gpu.duration.copy()
    duration[cut] -= overlap[overlap > 0]
    unknown = np.ones(len(gpu), bool)  # how long it took: what was cut, and the last of each stream, which may be long
    unknown[pairs.first[overlap <= 0]] = False
    mended = len(cut) <= _MAX_CUTS * len(gpu) and duration[unknown].sum() <= _MAX_CUT * duration.sum()
    return _with(trace, duration), [TimeFault("overlap", bool(mended), len(cut), len(gpu))]


def _pairs(gpu: GpuTable) -> _Pairs:
    queues, queue = numbered(gpu.queue)
    order = np.concatenate(split(np.arange(len(gpu)), queue, len(queues))) if len(queues) > 1 else np.arange(len(gpu))
    queue, launch = queue[order], gpu.correlation[order]
    last = np.append((queue[1:] != queue[:-1]) | (launch[1:] != launch[:-1]) | (launch[1:] <= 0), True)
    following = np.flatnonzero(last)[np.cumsum(last) - last] + 1  # the first row after those of the same launch
    known = following < len(order)
    first, second = np.flatnonzero(known), following[known]
    follows = (queue[first] == queue[second]) & (gpu.stream[order[first]] >= 0)
    return _Pairs(order[first[follows]], order[second[follows]])


def _in_nanoseconds(gpu: GpuTable, pairs: _Pairs, overlap: I8) -> Mask:
    """Work whose duration seems to be in ns, where the format has us: kernels if most of them last too long and all for
    whole microseconds, and with them the other kinds of work whose durations are as round.
    """
    kernels = gpu.kind == KERNEL
    of_kernels = overlap[kernels[pairs.first]]
    whole = next((unit for unit in (_UNIT**2, _UNIT) if not (gpu.duration[kernels] % unit).any()), None)
    if whole is None or not len(of_kernels) or (of_kernels > 0).mean() < _MOST_OVERLAP:
        return np.zeros(len(gpu), bool)
    round_kinds = [kind for kind in (KERNEL, MEMCPY, MEMSET) if not (gpu.duration[gpu.kind == kind] % whole).any()]
    return np.isin(gpu.kind, round_kinds)


def _too_short(gpu: GpuTable, duration: I8) -> int:
    """Number of kernels that are shorter than any kernel can be. 0 ns is a duration that is not in the file."""
    return int(((gpu.kind == KERNEL) & (duration > 0) & (duration < _SHORTEST_NS)).sum())


def _with(trace: Trace, duration: I8) -> Trace:
    return replace(trace, gpu=replace(trace.gpu, duration=duration))
