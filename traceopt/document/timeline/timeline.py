"""The timeline of one typical step: lanes of bars, as the report draws them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import EMPTY, Intervals, clip, merge, union
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.schema import I8, device_of_queue
from traceopt.analyzer.vocabulary.causes.span_categories import COPY, GPU_COMPUTE, TRANSFER
from traceopt.analyzer.vocabulary.kernels.kernel_labels import short_name
from traceopt.document.timeline.spans import (
    JOINED_SHARE,
    STREAM_WORK,
    activity_areas,
    busiest_lanes,
    joined,
    span_table,
    thread_title,
)
from traceopt.document.timeline.stalls import find_stalls
from traceopt.result.rows import Lane, Occupancy, Span, Timeline
from traceopt.result.words.rounding import us

MAX_SPANS = 400  # per lane
MAX_STREAMS = 6
OWN_LANE_SHARE = 0.01  # of the step: copies and collectives that take more get their own lane
MOST_BARS = 40  # of a lane; one with more spans also says how full each part of the step is
OCCUPANCY_PARTS = 206  # equal parts of the step: two pixels each on a phone


def timeline(facts: Facts) -> Timeline:
    """The lanes of the step whose duration is closest to the typical step."""
    steps = facts.steps
    index = steps.example
    start, end = int(steps.start[index]), int(steps.end[index])
    step = _ShownStep(facts, start, end)
    lanes = [step.host_lane("cpu", steps.thread)]
    lanes += step.launching_lanes()
    lanes += step.stream_lanes()
    of_all = np.array([np.searchsorted(facts.recorded_steps.start, start)])
    return Timeline(
        steps.names[index],
        us(end - start),
        [lane for lane in lanes if lane.spans],
        find_stalls(facts, of_all, start),
        span_table(facts),
    )


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
        gpu = self.facts.gpu
        rows = np.flatnonzero(gpu.work.meets(self.start, self.end))
        category = np.where(gpu.is_kernel[rows], GPU_COMPUTE.key, COPY.key)
        category = np.where(gpu.is_communication[rows], TRANSFER.key, category)
        queue, busy = gpu.work.queue[rows], gpu.work.duration[rows]
        lane_of = self._lane_of(queue, category, busy)
        keys, group = np.unique(np.stack([lane_of, queue.astype(str)]), axis=1, return_inverse=True)
        total = np.bincount(group.ravel(), weights=busy)
        device = device_of_queue(keys[1].astype(np.int64))
        kinds = np.array([list(STREAM_WORK).index(kind) for kind in keys[0]])
        chosen = busiest_lanes(total, device, max(MAX_STREAMS, len(gpu.devices)))
        lanes = []
        for index in chosen[np.lexsort((-total[chosen], kinds[chosen], device[chosen]))]:
            mine = np.flatnonzero(group.ravel() == index)
            longest = np.sort(mine[np.argsort(-busy[mine], kind="stable")[:MAX_SPANS]])
            start, name = gpu.work.start[rows[longest]], gpu.work.name[rows[longest]]
            spans = [
                self.span(max(self.start, a), min(self.end, b), short_name(self.facts.trace.names[code]), kind)
                for a, b, code, kind in zip(
                    start.tolist(),
                    (start + busy[longest]).tolist(),
                    name.tolist(),
                    category[longest].tolist(),
                    strict=True,
                )
            ]
            kind, number = map(str, keys[:, index])
            areas = {
                name: union(gpu.work.start[inside], gpu.work.end_of(inside))
                for name in STREAM_WORK
                if len(inside := rows[mine[category[mine] == name]])
            }
            occupancy = self._occupancy(areas, len(mine))
            first = rows[mine[0]]
            title, stream = f"{gpu.device_name(first)} {STREAM_WORK[kind]}", f"stream {gpu.work.stream[first]}"
            lanes.append(Lane(f"{kind}{number}", title, stream, spans, len(mine), occupancy))
        return lanes

    def _lane_of(self, queue: I8, category: npt.NDArray[np.str_], busy: I8) -> npt.NDArray[np.str_]:
        """The lane of each row: the kind of its work, or the main kind on its stream if there is little such work."""
        lane_of: npt.NDArray[np.str_] = category.copy()
        least = OWN_LANE_SHARE * (self.end - self.start)
        for number in distinct_values(queue):
            here = queue == number
            spent = {kind: busy[here & (category == kind)].sum() for kind in STREAM_WORK}
            main = max(spent, key=lambda kind: spent[kind])
            for kind in (kind for kind, ns in spent.items() if ns < least):
                lane_of[here & (category == kind)] = main
        return lane_of
