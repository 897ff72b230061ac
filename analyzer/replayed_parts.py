"""Splits a replayed step into busy parts of the device and causes of its idle time, as in the breakdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.intervals import Intervals, intersect, merge, subtract, union
from traceopt.analyzer.attribution.cpu_phases import PHASES
from traceopt.analyzer.replay.changes import DropSync, host_removals
from traceopt.analyzer.tables.schema import Mask
from traceopt.analyzer.timeline.gpu_work import BUSY_LABELS
from traceopt.analyzer.vocabulary.host_activities import DISPATCH, LABELS, QUEUED, UNTRACED, WITHOUT_LAUNCHES

if TYPE_CHECKING:
    from traceopt.analyzer.facts import Facts
    from traceopt.analyzer.replay.changes import Change
    from traceopt.analyzer.replay.replayed import Replayed


MOSTLY_IDLE_SHARE = 0.5  # a step with so much idle time is limited by its largest cause, whatever part is larger
IDLE_LIMIT_SHARE = 0.2  # with at least this much idle time, an idle cause limits the step; else device work does


def limit_of(parts: Mapping[str, float]) -> str:
    """What limits the step: its largest part. Only idle causes count if idle time is a large part of the step, else
    only busy parts.

    For a CPU-only step it is the largest of all parts.
    """
    if "compute" not in parts:
        return max(parts, key=lambda name: parts[name])
    groups = grouped(parts)
    idle = {name: ns for name, ns in groups.items() if name not in BUSY_LABELS}
    busy = {name: ns for name, ns in groups.items() if name in BUSY_LABELS}
    chosen = idle if sum(idle.values()) >= IDLE_LIMIT_SHARE * sum(groups.values()) else busy
    return max(chosen, key=lambda name: chosen[name])


def clear_limit(parts: Mapping[str, float]) -> str | None:
    """What limits the step, if it is also the largest part, or a cause of a step that is mostly idle; else None."""
    limit = limit_of(parts)
    if "compute" not in parts:
        return limit
    groups = grouped(parts)
    idle = sum(amount for name, amount in groups.items() if name not in BUSY_LABELS)
    clear = groups[limit] >= max(groups.values()) or idle >= MOSTLY_IDLE_SHARE * sum(groups.values())
    return limit if clear else None


def grouped(parts: Mapping[str, float]) -> dict[str, float]:
    """The parts of a step with a GPU, with the host's ordinary work as one: "launch"."""
    groups = {name: amount for name, amount in parts.items() if name not in DISPATCH}
    groups["launch"] = sum(parts.get(name, 0.0) for name in DISPATCH)
    return groups


def treated_part(facts: Facts, changes: Sequence[Change]) -> str | None:
    """The part of the step that these changes treat: the one that they shorten most, dispatch grouped as in `grouped`.

    None if no change is known or nothing can be replayed.
    """
    if not changes or facts.replay_error is None:
        return None
    if facts.has_gpu and all(isinstance(change, DropSync) for change in changes):
        return "host_sync"  # whatever the host does meanwhile is hidden, but the wait is what goes
    before, after = parts_of(facts, facts.replayed), parts_of(facts, facts.replay(changes))
    if facts.has_gpu:
        before, after = grouped(before), grouped(after)
    return max(before, key=lambda name: before[name] - after.get(name, 0.0))


def labels_of(facts: Facts) -> Mapping[str, str]:
    """The labels of the parts of this step, by name."""
    return {**idle_labels(facts), **BUSY_LABELS} if facts.has_gpu else {name: label for name, label, _ in PHASES}


def idle_labels(facts: Facts) -> Mapping[str, str]:
    """The labels of the causes of idle time, by name. Without the launches of the work, none speaks of launches."""
    return LABELS if facts.replay_error is not None else LABELS | WITHOUT_LAUNCHES


def busy_names(facts: Facts) -> frozenset[str]:
    """Parts in which the device works; in a CPU-only step, those in which the model works."""
    return frozenset(BUSY_LABELS) if facts.has_gpu else frozenset(name for name, _, busy in PHASES if busy)


def parts_of(facts: Facts, replayed: Replayed) -> dict[str, float]:
    """Exclusive parts by name, ns of the typical step. They sum to the step."""
    complete, settled = replayed.timing.complete, replayed.graph.settled
    window = union(complete[settled], complete[settled + 1])
    spent = _host_time(facts, replayed)
    if facts.has_gpu:
        parts, starved, queued = _device_parts(facts, replayed, window)
        parts |= _starved_parts(facts, replayed, spent, starved) | {QUEUED: float(queued)}
    else:
        step = np.searchsorted(replayed.graph.borders, np.arange(len(replayed.rows))) - 1
        counts = np.isin(step, settled)
        parts = {name: float(amount[counts].sum()) for name, amount in spent.items()}
    return {name: ns / len(settled) for name, ns in parts.items()}


def _device_parts(facts: Facts, replayed: Replayed, window: Intervals) -> tuple[dict[str, float], Intervals, int]:
    """Busy parts, when the device starved, and for how long it was idle although work was queued."""
    graph, gpu = facts.replay_graph, facts.gpu
    rows = np.flatnonzero(graph.work >= 0)
    end = replayed.timing.end[rows]
    start = end - replayed.rows.duration[rows]

    def area(mask: Mask) -> Intervals:
        mine = mask[graph.work[rows]]
        return intersect(union(start[mine], end[mine]), window)

    compute, communication, copies = area(gpu.is_compute), area(gpu.is_communication), area(gpu.is_copy)
    busy = merge(compute, communication, copies)
    idle = subtract(window, busy)
    order = np.argsort(start, kind="stable")
    following = np.searchsorted(start[order], idle.end, side="left")
    issued = (replayed.timing.clock + np.maximum(replayed.rows.latency, 0))[rows[order]]
    starved = union(idle.start, np.clip(np.append(issued, window.end[-1])[following], idle.start, idle.end))
    parts = {
        "compute": float(compute.total),
        "communication": float(subtract(communication, compute).total),
        "copies": float(subtract(copies, merge(compute, communication)).total),
    }
    return parts, starved, idle.total - starved.total


def _host_time(facts: Facts, replayed: Replayed) -> dict[str, npt.NDArray[np.float64]]:
    """Remaining host time before each row by activity name, ns; they sum to `rows.host`."""
    graph = facts.replay_graph
    begin, end = graph.host_start, graph.host_end
    removals = host_removals(graph, replayed.changes)
    areas = facts.flow_areas if facts.has_gpu else facts.of_every_step.cpu_phases.areas
    none = np.zeros(len(begin))
    none.flags.writeable = False
    spent = dict.fromkeys((*areas, UNTRACED), none)
    for name, area in areas.items():
        if not len(area):
            continue
        amount = area.within(begin, end).astype(np.float64)
        for removal in removals:
            if len(both := intersect(area, removal.area)):
                amount -= removal.share * both.within(begin, end)
        spent[name] = np.maximum(amount, 0, out=amount)
    traced, removed = np.zeros(len(begin)), np.zeros(len(begin))
    for amount in spent.values():
        traced += amount
    for removal in removals:
        removed += removal.share * removal.area.within(begin, end)
    left = graph.rows.host - removed
    left -= traced
    spent[UNTRACED] = spent[UNTRACED] + np.maximum(left, 0, out=left)
    total = np.add(traced, left, out=traced)
    scale = np.divide(replayed.rows.host, total, out=np.zeros(len(begin)), where=total > 0)
    for amount in spent.values():
        if amount is not none:
            amount *= scale
    return spent


def _starved_parts(
    facts: Facts, replayed: Replayed, spent: dict[str, npt.NDArray[np.float64]], starved: Intervals
) -> dict[str, float]:
    """What the host did while the device starved, by name. A wait counts for the activity that waits (an allocation
    waits for the device as well), else as a sync.
    """
    clock, host = replayed.timing.clock, replayed.rows.host
    begin = np.append(clock[:1] - host[:1], clock[:-1])
    working = starved.within(begin, begin + host)
    share = np.divide(working, host, out=np.zeros(len(host)), where=host > 0)
    parts = {name: float((amount * share).sum()) for name, amount in spent.items()}
    waited = starved.within(begin + host, clock)
    waits = np.flatnonzero((waited > 0) & (replayed.graph.call >= 0))
    calls = facts.trace.runtime.take(replayed.graph.call[waits])
    for name, area in facts.flow_areas.items():
        if name != "host_sync" and len(area):
            mine = area.contains(calls.start)
            parts[name] += float(waited[waits[mine]].sum())
            waited[waits[mine]] = 0
    parts["host_sync"] += float(waited.sum())
    parts[UNTRACED] += max(0.0, starved.total - sum(parts.values()))
    return parts
