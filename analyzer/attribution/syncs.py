"""Host syncs: every call that blocks on the GPU, why it is there, and what it costs.

A sync is a stall only if the GPU is starved during it or during the refill after it. A sync while the GPU works is
free: the host would have had to wait somewhere.
"""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, subtract, union
from traceopt.analyzer.attribution.idle import Gaps
from traceopt.analyzer.tables.schema import I4, I8, MEMCPY, Mask
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_tree import OP, Slices
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.launch_links import LaunchLinks
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps

SCALAR_READ, DATA_DEPENDENT, BLOCKING_COPY, TO_DEVICE, EXPLICIT, OTHER = (
    "scalar_read",
    "data_dependent_shape",
    "blocking_copy",
    "to_device",
    "explicit",
    "other",
)
# Operators that read one number, that produce an output whose shape depends on the data, and that copy a tensor.
_REASONS = (
    (SCALAR_READ, re.compile(r"^aten::(?:_local_scalar_dense|item|is_nonzero|equal)$")),
    (
        DATA_DEPENDENT,
        re.compile(
            r"^aten::(?:nonzero|masked_select|_?unique\w*|repeat_interleave|bincount|argwhere|unique_consecutive"
            r"|multinomial|index)$"
        ),
    ),
    (BLOCKING_COPY, re.compile(r"^aten::(?:copy_|to|_to_copy|_to_cpu|cpu|numpy|tolist)$")),
)
_UNSCALE = "aten::_amp_foreach_non_finite_check_and_unscale_"
_TO_PAGEABLE = re.compile(r"DtoH .*Pageable")
_MOST_OPS_AROUND = 100  # nested operators that are climbed
_AHEAD_NS = 50_000  # a kernel that starts this long after its launch shows that the host is ahead of the GPU again


def after_copies_to_host(trace: Trace, syncs: Syncs, slices: Slices, links: LaunchLinks) -> npt.NDArray[np.bool_]:
    """Syncs before which the last work that was launched copies to pinned memory: the host may read that only when the
    sync has returned. Shape (len(syncs),).
    """
    known = links.launch_slice >= 0
    launched = slices.start[links.launch_slice[known]]
    order = np.argsort(launched, kind="stable")
    to_pinned = np.array([name.startswith("Memcpy DtoH") and "Pageable" not in name for name in trace.names] or [False])
    last = np.searchsorted(launched[order], syncs.start) - 1
    return np.asarray((last >= 0) & np.append(to_pinned[trace.gpu.name[known][order]], False)[last])


def blocking_copies(trace: Trace, links: LaunchLinks) -> npt.NDArray[np.bool_]:
    """Runtime rows that copy to pageable host memory: named "Async", but they return only when the copy is done."""
    mask = np.zeros(len(trace.runtime), bool)
    copies = np.flatnonzero((trace.gpu.kind == MEMCPY) & (links.launch >= 0))
    codes = distinct_values(trace.gpu.name[copies])
    blocking = [code for code in codes if _TO_PAGEABLE.search(trace.names[code])]
    mask[links.launch[copies[np.isin(trace.gpu.name[copies], blocking)]]] = True
    return mask


class Syncs(Struct, frozen=True, dict=True):
    """The blocking calls inside the window, one row per call; arrays have shape (len,), times in ns."""

    slice: I8  # row of Slices
    start: I8
    end: I8
    wait: I8  # of the host in the window, without the time of earlier work
    step: I8
    reason: npt.NDArray[np.str_]
    cause_slice: I8  # the operator that made the call, else the call itself: where to look for the call site
    idle: I8  # GPU starvation during the call
    refill_end: I8  # when the host was ahead again; the end of the call if it lost no lead
    refill: I8  # GPU starvation from the end of the call until then

    def __len__(self) -> int:
        return len(self.slice)

    @cached_property
    def stall(self) -> I8:
        return self.idle + self.refill

    def calls(self, rows: I8) -> int:
        """The number of operators behind some of these syncs (or of calls, if no operator made them): one operator may
        block several times.
        """
        return len(distinct_values(self.cause_slice[rows]))

    @cached_property
    def refill_area(self) -> Intervals:
        return union(self.end, self.refill_end) if len(self) else EMPTY


def find_syncs(
    trace: Trace,
    slices: Slices,
    links: LaunchLinks,
    steps: Steps,
    gpu: GpuWork,
    gaps: Gaps,
    rows: npt.NDArray[np.int64],
    earlier_work: Intervals = EMPTY,
    needed: Intervals = EMPTY,
) -> Syncs:
    """The syncs among `rows`, the slices of blocking calls. Without GPU work they cause no stalls. `needed`: when the
    host would do the same without syncs: it waits for worker processes, which build a batch no sooner if the host asks
    sooner, or updates weights by gradients of the GPU.
    """
    window = subtract(steps.host_window, earlier_work)
    rows = rows[window.within(slices.start[rows], slices.end[rows]) > 0]
    rows = rows[np.argsort(slices.start[rows], kind="stable")]
    start, end = slices.start[rows], slices.end[rows]
    idle = gaps.starved.within(start, end)
    reason, cause = _reasons(trace, slices, rows)
    starved = subtract(gaps.starved, needed)
    refill_end = _refill_end(trace, links, gpu, gaps, starved, start, end, reason)
    refill = starved.within(end, refill_end)
    reason[(reason == BLOCKING_COPY) & _copy_to_device(trace, slices, links, cause)] = TO_DEVICE
    wait, step = window.within(start, end), steps.host_step_of(start)
    return Syncs(rows, start, end, wait, step, reason, cause, idle, refill_end, refill)


def _reasons(
    trace: Trace, slices: Slices, rows: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.str_], npt.NDArray[np.int64]]:
    """Why each call is there, from the operators around it. The user asked for a sync that no operator made."""
    op = slices.kind == OP
    reasons = np.where(slices.ancestor(rows, op) >= 0, OTHER, EXPLICIT).astype("U24")
    cause = rows.copy()
    used = slices.name_codes(OP)
    for reason, pattern in reversed(_REASONS):  # the most specific reason last, so that it wins
        named = np.zeros(len(trace.names) + 1, bool)
        named[[code for code in used if pattern.match(trace.names[code])]] = True
        found = slices.ancestor(rows, op & named[slices.name])
        reasons[found >= 0] = reason
        cause = np.where(found >= 0, _outermost_op(slices, found), cause)
    return reasons, cause


def _copy_to_device(trace: Trace, slices: Slices, links: LaunchLinks, cause: npt.NDArray[np.int64]) -> Mask:
    """Which of these operators copy to the device, and nothing to the host. Shape (len(cause),)."""
    around = slices.mask(cause)
    copies = trace.gpu.kind == MEMCPY

    def launch(direction: str) -> Mask:
        named = np.array([name.startswith(f"Memcpy {direction}") for name in trace.names] or [False])
        return np.isin(cause, slices.ancestor(links.launch_slice[copies & named[trace.gpu.name]], around))

    return launch("HtoD") & ~launch("DtoH")


def of_copies_to_device(slices: Slices, links: LaunchLinks, syncs: Syncs) -> Mask:
    """The device's work of operators that copy to the device and wait for the copy. Shape (len(gpu.work),)."""
    copying = slices.mask(syncs.cause_slice[syncs.reason == TO_DEVICE])
    return np.asarray(slices.ancestor(links.launch_slice, copying) >= 0)


def _outermost_op(slices: Slices, found: I4) -> I4:
    """From an operator to the outermost operator around it (aten::item around _local_scalar_dense)."""
    op = slices.kind == OP
    out = found
    for _ in range(_MOST_OPS_AROUND):
        parent = np.where(out >= 0, slices.parent[np.maximum(out, 0)], -1)
        climbs = (parent >= 0) & op[np.maximum(parent, 0)]
        if not climbs.any():
            break
        out = np.where(climbs, parent, out).astype(np.int32)
    return out


def _refill_end(
    trace: Trace,
    links: LaunchLinks,
    gpu: GpuWork,
    gaps: Gaps,
    starved: Intervals,
    start: I8,
    end: I8,
    reason: npt.NDArray[np.str_],
) -> I8:
    """When the host is ahead again after each call: until then the call is to blame for starvation.

    Only a call that returns to an idle GPU has a refill. The refill's starvation is limited to the lead that the host
    lost in the call: how long the last work before the gap had waited between launch and start. What is left of the
    lead lost in earlier calls for the same reason counts as well: without any of them, the host would still have it.
    """
    work = gpu.work
    if not len(gaps) or not len(work) or not len(trace.runtime) or not len(end):
        return end
    launch = links.launch
    known = launch >= 0
    launched = np.where(known, trace.runtime.start[np.maximum(launch, 0)], np.iinfo(np.int64).min)
    issued = np.where(known, trace.runtime.end_of(np.maximum(launch, 0)), work.start)
    issued = np.where(known & (issued > work.start), launched, issued)  # the call blocks until its own work is done
    delay = work.start - issued

    gap = np.searchsorted(gaps.start, end, side="right") - 1
    drained = (gap >= 0) & (end <= gaps.starved_end[np.maximum(gap, 0)])
    before = np.searchsorted(work.start, gaps.start[np.maximum(gap, 0)], side="left") - 1
    lead = np.where(drained & (before >= 0), np.maximum(delay[np.maximum(before, 0)], 0), 0)
    lead = np.minimum(lead, end - start)
    spent = np.diff(starved.covered_before(end), prepend=0)  # from call to call, of the lead lost until then
    spent[1:] += np.where(reason[1:] != reason[:-1], lead.max(), 0)
    spent = np.cumsum(spent)
    lead = np.maximum.accumulate(lead + spent) - spent

    ahead = np.flatnonzero(delay >= _AHEAD_NS)
    ahead = ahead[np.argsort(launched[ahead], kind="stable")]
    index = np.searchsorted(launched[ahead], end, side="left")
    recovered = np.where(
        index < len(ahead), work.start[ahead[np.minimum(index, len(ahead) - 1)]] if len(ahead) else end, end
    )
    next_call = np.append(start[1:], np.iinfo(np.int64).max)
    stop = np.minimum(np.maximum(recovered, end), np.maximum(next_call, end))
    stop = np.minimum(stop, _time_after(starved, end, lead))
    return np.where(drained, stop, end)


def after_unscaling(trace: Trace, syncs: Syncs, regions: Regions) -> npt.NDArray[np.bool_]:
    """The first scalar read between the loss scaler's unscale operator and the optimizer: it decides on the step."""
    out = np.zeros(len(syncs), bool)
    ops = trace.ops
    if _UNSCALE not in trace.names or not len(ops):
        return out
    unscaled = ops.end_of(ops.name == trace.names.index(_UNSCALE))
    reads = np.flatnonzero(syncs.reason == SCALAR_READ)
    first = np.searchsorted(syncs.start[reads], unscaled)
    found, unscaled = reads[first[first < len(reads)]], unscaled[first < len(reads)]
    updates = np.sort(regions.slices.start[regions.optimizer])
    update = np.append(updates, np.iinfo(np.int64).max)[np.searchsorted(updates, unscaled)]
    out[found[syncs.start[found] < update]] = True
    return out


def _time_after(area: Intervals, start: I8, amount: I8) -> I8:
    """When `amount` of `area` has passed since `start`."""
    if not len(area):
        return start
    target = area.covered_before(start) + amount
    before = np.concatenate(([0], np.cumsum(area.length)))
    index = np.clip(np.searchsorted(before, target, side="left") - 1, 0, len(area) - 1)
    return np.maximum(start, area.start[index] + (target - before[index]))
