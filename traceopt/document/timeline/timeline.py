"""The timeline of one typical step: lanes of bars, as the report draws them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import group_rows, numbered
from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, clip, merge, union
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.schema import I8, device_of_queue
from traceopt.analyzer.vocabulary.kernels.kernel_labels import short_name
from traceopt.document.timeline.lanes import (
    JOINED_SHARE,
    STREAM_WORK,
    activity_areas,
    busiest_lanes,
    joined,
    thread_title,
)
from traceopt.document.timeline.spans import MOST_LETTERS, MOST_SPANS, span_table
from traceopt.document.timeline.stalls import find_stalls
from traceopt.result.sections.timeline_rows import Lane, Occupancy, Span, Timeline
from traceopt.result.words.rounding import us

MAX_SPANS = 400  # per lane
MAX_STREAMS = 6
OWN_LANE_SHARE = 0.01  # of the step: copies and collectives that take more get their own lane
MOST_BARS = 40  # of a lane; one with more spans also says how full each part of the step is
OCCUPANCY_PARTS = 206  # equal parts of the step: two pixels each on a phone


def timeline(facts: Facts, sharing: int = 1) -> Timeline:
    """The lanes of the step whose duration is closest to the typical step. `sharing`: how many ranks share the room of
    the report for spans.
    """
    steps, index = facts.steps, facts.steps.example
    start, end = int(steps.start[index]), int(steps.end[index])
    step = _ShownStep(facts, start, end)
    lanes = [step.host_lane("cpu", steps.thread)]
    lanes += step.launching_lanes()
    lanes += step.stream_lanes()
    of_all = np.array([np.searchsorted(facts.recorded_steps.start, start)])
    lanes = [lane for lane in lanes if lane.spans]
    return replace(spans_of_step(facts, sharing), lanes=lanes, stalls=find_stalls(facts, of_all, start))


def spans_of_step(facts: Facts, sharing: int = 1) -> Timeline:
    """The same without lanes and stalls."""
    steps, index = facts.steps, facts.steps.example
    duration = int(steps.end[index]) - int(steps.start[index])
    table = span_table(facts, MOST_SPANS // sharing, MOST_LETTERS // sharing)
    return Timeline(steps.names[index], us(duration), [], [], table)


class _ShownStep:
    def __init__(self, facts: Facts, start: int, end: int) -> None:
        self.facts = facts
        self.start = start
        self.end = end

    def span(self, start: int, end: int, name: str, category: str) -> Span:
        return Span(us(start - self.start), us(end - start), name, category)

    def host_lane(self, key: str, thread: int) -> Lane:
        """What a thread did: its phases in a CPU-only run, its activities in a run with a GPU."""
        spans: list[Span] = []
        areas: dict[str, Intervals] = {}
        for span_category, label, area in activity_areas(self.facts, thread):
            inside = joined(clip(area, self.start, self.end), int((self.end - self.start) * JOINED_SHARE))
            category = span_category.key
            areas[category] = merge(areas.get(category, EMPTY), inside)
            spans += [self.span(int(a), int(b), label, category) for a, b in zip(inside.start, inside.end, strict=True)]
        longest = sorted(spans, key=lambda span: -span.duration_us)[:MAX_SPANS]
        in_order = sorted(longest, key=lambda span: span.start_us)
        title = thread_title(self.facts, thread) if thread >= 0 else ("CPU main thread", "")
        return Lane(key, *title, in_order, len(spans), self._occupancy(areas, len(spans)))

    def _occupancy(self, areas: Mapping[str, Intervals], spans: int) -> list[Occupancy]:
        """How full each part of the step is, by category, if there are too many spans to draw each of them."""
        if spans <= MOST_BARS:
            return []
        edges = np.linspace(self.start, self.end, OCCUPANCY_PARTS + 1)
        length = np.diff(edges)
        return [
            Occupancy(category, [round(part, 3) for part in (area.within(edges[:-1], edges[1:]) / length).tolist()])
            for category, area in areas.items()
            if len(area)
        ]

    def launching_lanes(self) -> list[Lane]:
        """The other threads that launched the most GPU work in the step, one for each GPU; usually autograd's."""
        if not self.facts.has_gpu:
            return []
        runtime = self.facts.trace.runtime
        launch = self.facts.links.launch
        launch = launch[launch >= 0]
        inside = launch[(runtime.start[launch] >= self.start) & (runtime.start[launch] < self.end)]
        threads, counts = np.unique(runtime.thread[inside], return_counts=True)
        others = [int(t) for t in threads[np.argsort(-counts)] if t != self.facts.steps.thread]
        return [self.host_lane(f"cpu{i}", t) for i, t in enumerate(others[: len(self.facts.gpu.devices)], 1)]

    def stream_lanes(self) -> list[Lane]:
        """Work of each GPU by kind and stream: compute, then communication, then copies, busiest stream first."""
        if not self.facts.has_gpu:
            return []
        gpu, categories = self.facts.gpu, list(STREAM_WORK)
        rows = np.flatnonzero(gpu.work.meets(self.start, self.end))
        kind = np.where(gpu.is_communication[rows], 1, np.where(gpu.is_kernel[rows], 0, 2))  # of STREAM_WORK
        queue, busy = gpu.work.queue[rows], gpu.work.duration[rows]
        lane = self._lane_of(queue, kind, busy)
        first, group = group_rows(lane, queue)
        total, main, device = np.bincount(group, weights=busy), lane[first], device_of_queue(queue[first])
        chosen = busiest_lanes(total, device, max(MAX_STREAMS, len(gpu.devices)))
        lanes = []
        for index in chosen[np.lexsort((-total[chosen], main[chosen], device[chosen]))].tolist():
            mine = np.flatnonzero(group == index)
            longest = np.sort(mine[np.argsort(-busy[mine], kind="stable")[:MAX_SPANS]])
            start, name = gpu.work.start[rows[longest]], gpu.work.name[rows[longest]]
            spans = [
                self.span(max(self.start, a), min(self.end, b), short_name(self.facts.trace.names[code]), categories[c])
                for a, b, code, c in zip(
                    start.tolist(), (start + busy[longest]).tolist(), name.tolist(), kind[longest].tolist(), strict=True
                )
            ]
            areas = {
                category: union(gpu.work.start[inside], gpu.work.end_of(inside))
                for code, category in enumerate(categories)
                if len(inside := rows[mine[kind[mine] == code]])
            }
            row, category = int(rows[mine[0]]), categories[main[index]]
            title, stream = f"{gpu.device_name(row)} {STREAM_WORK[category]}", f"stream {gpu.work.stream[row]}"
            occupancy = self._occupancy(areas, len(mine))
            lanes.append(Lane(f"{category}{queue[first[index]]}", title, stream, spans, len(mine), occupancy))
        return lanes

    def _lane_of(self, queue: I8, kind: I8, busy: I8) -> I8:
        """The lane of each row: the kind of its work, or the main kind on its stream if there is little such work."""
        queues, number = numbered(queue)
        spent = np.zeros((len(queues), len(STREAM_WORK)))
        np.add.at(spent, (number, kind), busy)
        little = spent[number, kind] < OWN_LANE_SHARE * (self.end - self.start)
        return np.where(little, spent.argmax(axis=1)[number], kind)
