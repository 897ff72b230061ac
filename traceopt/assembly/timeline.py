"""The timeline of one typical step: lanes of bars, as the report draws them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import Intervals, clip, merge
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.stalls.idle import CAUSES
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.cpu_phases import PHASES
from traceopt.analyzer.vocabulary.host_activities import ACTIVITIES, LABELS, Activity
from traceopt.analyzer.vocabulary.kernels.kernel_labels import short_name
from traceopt.result.finding import Location
from traceopt.result.rounding import us
from traceopt.result.rows import Lane, Span, Stall, Timeline
from traceopt.rules.evidence import location_of

MAX_SPANS = 400  # per lane
MAX_STREAMS = 6
OWN_LANE_SHARE = 0.01  # of the step: copies and collectives that take more get their own lane
SMALLEST_STALL_SHARE = 0.01  # of the step
_MERGE_SHARE = 0.002  # of the step: host activities of one kind with smaller gaps become one bar

# The category of host activities and phases; other work on the host is "cpu".
_CATEGORY = {
    "data_loading": "loader",
    "input_work": "input",
    "host_sync": "wait",
    "communication": "comm",
    "logging": "logging",
    "checkpoint": "checkpoint",
    "gc": "gc",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
}
_STREAM_TITLES = {"compute": "GPU compute", "comm": "GPU communication", "copy": "GPU copies"}


def timeline(facts: Facts) -> Timeline:
    """The lanes of the step whose duration is closest to the typical step."""
    index = facts.steps.example
    start, end = int(facts.steps.start[index]), int(facts.steps.end[index])
    step = _ShownStep(facts, start, end)
    lanes = [step.host_lane("cpu", "CPU main thread", facts.steps.thread)]
    lanes += step.launching_lanes()
    lanes += step.stream_lanes()
    stalls = step.gpu_stalls() if facts.has_gpu else step.cpu_stalls()
    return Timeline(facts.steps.names[index], us(end - start), [lane for lane in lanes if lane.spans], stalls)


class _ShownStep:
    def __init__(self, facts: Facts, start: int, end: int) -> None:
        self.facts = facts
        self.start = start
        self.end = end

    def span(self, start: int, end: int, name: str, category: str) -> Span:
        return Span(us(start - self.start), us(end - start), name, category)

    def host_lane(self, key: str, name: str, thread: int) -> Lane:
        """What a thread did: its phases in a CPU-only run, its activities in a run with a GPU."""
        if self.facts.has_gpu:
            parts = [(a.name, a.label, area) for a, area in self._activities(thread)]
        else:
            areas = self.facts.cpu_phases.areas
            parts = [(phase, label, areas[phase]) for phase, label, _ in PHASES if phase != "untraced"]
        spans = []
        for part, label, area in parts:
            inside = _bridged(clip(area, self.start, self.end), int((self.end - self.start) * _MERGE_SHARE))
            category = _CATEGORY.get(part, "cpu")
            spans += [self.span(int(a), int(b), label, category) for a, b in zip(inside.start, inside.end, strict=True)]
        info = self.facts.trace.threads[thread] if 0 <= thread < len(self.facts.trace.threads) else None
        return _lane(key, name, f"thread {info.tid}" if info else "", spans)

    def _activities(self, thread: int) -> list[tuple[Activity, Intervals]]:
        areas = self.facts.host.of_thread(thread)
        return [(activity, areas[activity.name]) for activity in ACTIVITIES]

    def launching_lanes(self) -> list[Lane]:
        """The other thread that launched the most GPU work in the step, usually the autograd thread."""
        if not self.facts.has_gpu:
            return []
        runtime = self.facts.trace.runtime
        launch = self.facts.links.launch[self.facts.gpu.rows]
        launch = launch[launch >= 0]
        inside = launch[(runtime.start[launch] >= self.start) & (runtime.start[launch] < self.end)]
        threads, counts = np.unique(runtime.thread[inside], return_counts=True)
        others = [int(t) for t in threads[np.argsort(-counts)] if t != self.facts.steps.thread]
        return [self.host_lane(f"cpu{i}", "CPU autograd thread", t) for i, t in enumerate(others[:1], 1)]

    def stream_lanes(self) -> list[Lane]:
        """GPU work by kind and stream: compute, then communication, then copies, busiest stream first."""
        if not self.facts.has_gpu:
            return []
        gpu = self.facts.gpu
        rows = np.flatnonzero(gpu.work.meets(self.start, self.end))
        category = np.where(gpu.is_communication[rows], "comm", np.where(gpu.is_kernel[rows], "compute", "copy"))
        stream, busy = gpu.work.stream[rows], gpu.work.duration[rows]
        lane_of = self._lane_of(stream, category, busy)
        keys, group = np.unique(np.stack([lane_of, stream.astype(str)]), axis=1, return_inverse=True)
        total = np.bincount(group.ravel(), weights=busy)
        chosen = np.argsort(-total, kind="stable")[:MAX_STREAMS]
        lanes = []
        for index in sorted(chosen, key=lambda i: (list(_STREAM_TITLES).index(keys[0, i]), -total[i])):
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
            lanes.append(Lane(f"{kind}{number}", _STREAM_TITLES[kind], f"stream {number}", spans, len(mine)))
        return lanes

    def _lane_of(self, stream: I8, category: npt.NDArray[np.str_], busy: I8) -> npt.NDArray[np.str_]:
        """The lane of each row: the kind of its work, or the main kind on its stream if there is little such work."""
        lane_of: npt.NDArray[np.str_] = category.copy()
        least = OWN_LANE_SHARE * (self.end - self.start)
        for number in distinct_values(stream):
            here = stream == number
            spent = {kind: busy[here & (category == kind)].sum() for kind in _STREAM_TITLES}
            main = max(spent, key=lambda kind: spent[kind])
            for kind in (kind for kind, ns in spent.items() if ns < least):
                lane_of[here & (category == kind)] = main
        return lane_of

    def gpu_stalls(self) -> list[Stall]:
        """The longest idle gaps of the step, each with its main cause."""
        gaps, amount = self.facts.gaps, self.facts.idle.amount
        inside = np.flatnonzero((gaps.start >= self.start) & (gaps.end <= self.end))
        long = inside[gaps.end[inside] - gaps.start[inside] >= SMALLEST_STALL_SHARE * (self.end - self.start)]
        long = long[np.argsort(gaps.start[long] - gaps.end[long], kind="stable")[:20]]
        stalls = []
        for row in long:
            cause = CAUSES[int(amount[row].argmax())]
            stalls.append(
                Stall(
                    us(gaps.start[row] - self.start),
                    us(gaps.end[row] - gaps.start[row]),
                    cause,
                    LABELS[cause],
                    self._host_site(int(gaps.thread[row]), int(gaps.start[row] + gaps.starved_end[row]) // 2),
                )
            )
        return stalls

    def _host_site(self, thread: int, time: int) -> Location | None:
        return location_of(self.facts, int(self.facts.slices.at(thread, np.array([time]))[0]))

    def cpu_stalls(self) -> list[Stall]:
        """The longest gaps without model work on the main thread."""
        stalls = []
        for phase, label, busy in PHASES:
            if busy or phase in ("python", "untraced"):
                continue
            area = clip(self.facts.cpu_phases.areas[phase], self.start, self.end)
            for a, b in zip(area.start, area.end, strict=True):
                if b - a >= SMALLEST_STALL_SHARE * (self.end - self.start):
                    stalls.append(Stall(us(a - self.start), us(b - a), phase, label))
        return sorted(stalls, key=lambda s: -s.duration_us)[:20]


def _lane(key: str, name: str, detail: str, spans: list[Span]) -> Lane:
    longest = sorted(spans, key=lambda s: -s.duration_us)[:MAX_SPANS]
    return Lane(key, name, detail, sorted(longest, key=lambda s: s.start_us), len(spans))


def _bridged(area: Intervals, gap_ns: int) -> Intervals:
    """Intervals with the gaps shorter than `gap_ns` closed."""
    if len(area) < 2:
        return area
    short = area.start[1:] - area.end[:-1] < gap_ns
    return merge(area, Intervals(area.end[:-1][short], area.start[1:][short])) if short.any() else area
