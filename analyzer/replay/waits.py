"""What waits for what: the host in syncs, blocking copies and full queues, and one stream for another.

The profiler records what was waited for only in sync rows. Without them it is inferred: a call that returned just after
some work ended waited for the last work that it could have waited for, and a stream wait is for the work that the host
last issued to another stream. A dependency that contradicts the recorded times is dropped.
"""

from __future__ import annotations

import re

import numpy as np

from traceopt.analyzer.arrays.columns import Columns
from traceopt.analyzer.replay.calls import LAUNCH, STREAM_WAIT, SYNC, Calls, named
from traceopt.analyzer.replay.queues import Queues
from traceopt.analyzer.tables.schema import I8, MEMCPY, Mask, queue_of
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.vocabulary import runtime_calls

TOLERANCE_NS = 2_000  # times truncated to microseconds, and two clocks
WAKE_NS = 10_000  # maximum time from the end of work to the return of a call that did not have to wait for it
SLOW_CALL_NS = 50_000
LONG_WORK_NS = 20_000
BLOCKING_SHARE = 0.9  # if this share of long kernels ends before its launch returns, launches block
DEEP_QUEUE = 256  # launches in flight; drivers hold about 1024 and then block
SOON_NS = 100_000  # a launch that waited for room in the queue returns this soon after there was room

_OF_DEVICE = re.compile(r"(?:Device|Ctx|Thread)Synchronize|^synchronize$|QueueFinish|SynchronizeDevice")
_OF_STREAM = re.compile(r"StreamSynchronize|synchronizeStream|SynchronizeStream")
_TO_PAGEABLE = re.compile(r"DtoH .*Pageable")


class HostWaits(Columns, frozen=True):
    """One row for each piece of work that a call waited for; arrays have shape (len,)."""

    call: I8
    target: I8  # row of Queues that is awaited
    wake: I8  # ns from that end to the end of the wait; negative for copies that return once the rest is staged
    blocked: Mask  # the call had to wait
    inferred: Mask


def find_host_waits(trace: Trace, gpu: GpuWork, calls: Calls, queues: Queues) -> HostWaits:
    """All waits of the host in the window."""
    parts = (_blocking_launches(trace, gpu, calls, queues), _full_queues(calls, queues), *_syncs(trace, calls, queues))
    return HostWaits(*(np.concatenate([getattr(part, name) for part in parts]) for name in HostWaits.__struct_fields__))


def _waits(calls: Calls, queues: Queues, call: I8, target: I8, inferred: bool, last_end: I8 | None = None) -> HostWaits:
    """The waits of calls. A call that had to wait keeps its observed delay after the end of the work; for others it is
    at most WAKE_NS. `last_end`: when the last work ended, if a call waits for several streams.
    """
    end = queues.end_of(target) if last_end is None else last_end
    late = calls.end[call] - end
    blocked = end > calls.start[call]
    wake = np.where(blocked, late, np.minimum(late, WAKE_NS))
    return HostWaits(call, target, wake, blocked, np.full(len(call), inferred))


def _blocking_launches(trace: Trace, gpu: GpuWork, calls: Calls, queues: Queues) -> HostWaits:
    """Launches that return when their work is done: copies (by name, or if a slow call lasted into the copy), and all
    work if almost all long kernels end before their launch returns (CUDA_LAUNCH_BLOCKING).
    """
    # If a stream's work did not start in launch order (damaged file), only some rows are usable.
    rows = np.flatnonzero((queues.launched >= 0) & (queues.launched == queues.call))
    rows = rows[~calls.concurrent[queues.launched[rows]]]
    call = queues.launched[rows]
    copies = gpu.work.kind[queues.row[rows]] == MEMCPY
    by_name = named(trace, trace.runtime.name[calls.row[call]], runtime_calls.is_blocking_sync)
    by_name |= named(trace, gpu.work.name[queues.row[rows]], lambda name: _TO_PAGEABLE.search(name) is not None)
    slow = calls.end[call] - calls.start[call] >= SLOW_CALL_NS
    waits = copies & (by_name | (slow & (calls.end[call] > queues.start[rows])))
    outlived = (calls.end[call] + TOLERANCE_NS >= queues.end[rows]) & (calls.kind[call] == LAUNCH)
    long = ~copies & (queues.end[rows] - queues.start[rows] >= LONG_WORK_NS)
    if long.any() and outlived[long].mean() >= BLOCKING_SHARE:
        waits |= ~copies & outlived
    return _waits(calls, queues, call[waits], rows[waits], False)


def _full_queues(calls: Calls, queues: Queues) -> HostWaits:
    """Slow launches behind hundreds of others: they return when the GPU starts the next piece of work."""
    call = np.flatnonzero((calls.kind == LAUNCH) & (calls.end - calls.start >= SLOW_CALL_NS) & ~calls.concurrent)
    issued = np.searchsorted(np.sort(queues.call), call, side="left")
    begun = np.searchsorted(np.sort(queues.start), calls.end[call], side="right")
    call = call[issued - begun >= DEEP_QUEUE]
    target = queues.latest(queues.last_done(call, calls.end[call]))
    end = queues.end_of(target)
    waits = (end > calls.start[call]) & (calls.end[call] - end <= SOON_NS)
    return _waits(calls, queues, call[waits], target[waits], True)


def _syncs(trace: Trace, calls: Calls, queues: Queues) -> list[HostWaits]:
    """Sync calls: the target is in the sync row if there is one, else it is inferred from the call's name and return
    time.
    """
    call = np.flatnonzero((calls.kind == SYNC) & ~calls.concurrent)
    names = trace.runtime.name[calls.row[call]]
    recorded = _recorded_target(trace, calls, queues, call)
    known = recorded >= 0
    of_device = named(trace, names, lambda name: _OF_DEVICE.search(name) is not None) & ~known
    of_stream = named(trace, names, lambda name: _OF_STREAM.search(name) is not None) & ~known
    other = ~(known | of_device | of_stream)

    until = calls.end[call] + TOLERANCE_NS
    last = queues.last_before(call)
    last[queues.end_of(last) > until] = -1
    ended_last = queues.latest(last)
    of_one = np.where(queues.end_of(ended_last) > calls.start[call], ended_last, queues.newest(last))
    finished = queues.latest(queues.last_done(call, until))
    other &= queues.end_of(finished) > calls.start[call]

    found = [(known, recorded, False), (of_stream & (of_one >= 0), of_one, True), (other, finished, True)]
    one_stream = [_waits(calls, queues, call[mine], target[mine], inferred) for mine, target, inferred in found]
    ends = queues.end_of(ended_last)  # a device sync waits for every stream
    masks = [of_device & (row >= 0) for row in last]
    every_stream = [
        _waits(calls, queues, call[mine], row[mine], False, ends[mine]) for mine, row in zip(masks, last, strict=True)
    ]
    return [*one_stream, *every_stream]


def _recorded_target(trace: Trace, calls: Calls, queues: Queues, call: I8) -> I8:
    """The target in the sync row of each call: a stream's last work before the call or before an event; -1: none."""
    sync, runtime = trace.sync, trace.runtime
    target = np.full(len(call), -1)
    if not len(sync) or not queues.streams:
        return target
    row = _find(sync.correlation, runtime.correlation[calls.row[call]])
    awaited = np.where(sync.awaited_stream[row] >= 0, sync.awaited_stream[row], sync.stream[row])
    stream = _find(queues.ids, queue_of(sync.device[row], awaited))
    record = _find(runtime.correlation, np.where(sync.event_record[row] > 0, sync.event_record[row], -2))
    recorded_at = np.where(record >= 0, np.searchsorted(calls.start, runtime.start[record]), call)
    # In a damaged file the event may be later, but nothing waits for later work.
    recorded_at = np.minimum(recorded_at, call)
    target = queues.last_before(recorded_at)[stream, np.arange(len(call))]
    return np.where((row >= 0) & (stream >= 0), target, -1)


def _find(values: I8, wanted: I8) -> I8:
    """The first row with each wanted value, -1: none. Shape (len(wanted),)."""
    order = np.argsort(values, kind="stable")
    at = np.minimum(np.searchsorted(values[order], wanted), len(values) - 1)
    return np.where(values[order[at]] == wanted, order[at], -1)


def find_stream_waits(trace: Trace, calls: Calls, queues: Queues) -> tuple[I8, Mask]:
    """For each row of `queues`, the row of another stream that a stream wait made it wait for (-1: none), and whether
    that is inferred.

    A stream wait delays what the host issues next to that stream. Without a sync row it is assumed to wait for what the
    host last issued to any other stream.
    """
    target, inferred = np.full(len(queues), -1), np.zeros(len(queues), bool)
    call = np.flatnonzero(calls.kind == STREAM_WAIT)
    order = np.argsort(queues.call, kind="stable")
    following = np.searchsorted(queues.call[order], call, side="right")
    comes = following < len(order)
    call, held = call[comes], order[following[comes]]
    last = queues.last_before(call)
    last[queues.stream[held], np.arange(len(call))] = -1
    recorded = _recorded_target(trace, calls, queues, call)
    awaited = np.where(recorded >= 0, recorded, queues.newest(last))
    end = queues.end_of(awaited)
    possible = np.flatnonzero((awaited >= 0) & (end <= queues.start[held] + TOLERANCE_NS))
    possible = possible[np.argsort(end[possible], kind="stable")]  # of several waits take the one that ended last
    target[held[possible]] = awaited[possible]
    inferred[held[possible]] = recorded[possible] < 0
    return target, inferred
