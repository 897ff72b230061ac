"""Every span of the steps around the shown one, as columns: see traceopt/result/sections/timeline_rows.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.arrays.codes import Codes
from traceopt.analyzer.arrays.grouping import group_rows, numbered
from traceopt.analyzer.arrays.intervals import clip
from traceopt.analyzer.attribution.stalls import long_gaps
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.schema import I8, KERNEL, device_of_queue
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP, PYTHON, RUNTIME
from traceopt.analyzer.vocabulary.causes.span_categories import ANNOTATED, CALL, CPU, PYTHON_CODE
from traceopt.analyzer.vocabulary.formulas.argument_text import argument_text
from traceopt.analyzer.vocabulary.kernels.kernel_labels import short_name
from traceopt.analyzer.vocabulary.python_frames import shown_frame
from traceopt.document.timeline.lanes import (
    CATEGORIES,
    CATEGORY_CODE,
    JOINED_SHARE,
    STREAM_WORK,
    activity_areas,
    busiest_lanes,
    joined,
    specific_categories,
    thread_title,
)
from traceopt.document.timeline.stalls import find_stalls
from traceopt.result.encoding.packing import pack_columns
from traceopt.result.sections.timeline_rows import COLUMNS, STREAM_COLUMNS, LaneKind, SpanLane, SpanTable, StepWindow
from traceopt.result.words.quantities import size
from traceopt.result.words.rounding import us

# A span takes 3 to 7 letters of the report, which may have 2.2 MB, 0.5 MB of them for plotly.js.
MOST_SPANS = 250_000
MOST_LETTERS = 1_000_000
MOST_STEPS = 400
MOST_THREADS = 8
MOST_STREAMS = 16
_OF_KIND = {PYTHON: PYTHON_CODE, ANNOTATION: ANNOTATED, OP: CPU, RUNTIME: CALL}  # of events
_NONE = np.empty(0, np.int64)


class _Lane(Struct, frozen=True):
    """The columns of one lane by name: arrays of shape (spans,), in order of start. Starts are times of the trace, and
    launch threads are numbered as in the trace; -1 stands for what is not known.
    """

    kind: LaneKind
    name: str
    detail: str
    thread: int  # -1: a stream
    columns: dict[str, I8]

    def __len__(self) -> int:
        return len(self.columns["start"])

    def take(self, rows: npt.NDArray[np.integer]) -> _Lane:
        return replace(self, columns={name: values[rows] for name, values in self.columns.items()})


def span_table(facts: Facts, most_spans: int = MOST_SPANS, most_letters: int = MOST_LETTERS) -> SpanTable:
    """The spans of as many steps around the example step as fit into `most_spans`, and into `most_letters` when packed.
    If that one step has more, its longest are kept.
    """
    table = _table(facts, most_spans)
    while len(table.columns) > most_letters:
        spans = sum(lane.count for lane in table.lanes)
        table = _table(facts, int(spans * 0.9 * most_letters / len(table.columns)))
    return table


def _table(facts: Facts, most_spans: int) -> SpanTable:
    steps = facts.recorded_steps
    chosen = _steps_that_fit(facts, most_spans)
    begin = int(min(steps.start[chosen[0]], steps.host_start[chosen[0]]))
    end = int(max(steps.end[chosen[-1]], steps.host_end[chosen[-1]]))
    maker = _LaneMaker(facts, begin, end)
    lanes = [lane for lane in (*maker.host_lanes(), maker.idle_lane(chosen), *maker.stream_lanes()) if len(lane)]
    kept = _longest(lanes, most_spans)
    zero = min((int(lane.columns["start"][0]) for lane in kept if len(lane)), default=begin)
    fields, columns = maker.coded(kept, zero)
    return SpanTable(
        steps=[
            StepWindow(
                int(step), steps.names[step], us(steps.start[step] - zero), us(steps.end[step] - steps.start[step])
            )
            for step in chosen
        ],
        lanes=[
            SpanLane(lane.kind, lane.name, lane.detail, len(lane), len(whole) - len(lane))
            for whole, lane in zip(lanes, kept, strict=True)
        ],
        **fields,
        stalls=find_stalls(facts, chosen, zero),
        columns=pack_columns(columns),
    )


def _steps_that_fit(facts: Facts, most_spans: int) -> npt.NDArray[np.int64]:
    """Consecutive steps, the example step and as many on each side as have no more spans together."""
    steps = facts.recorded_steps
    border = np.append(steps.start, steps.end[-1])
    spans = np.zeros(steps.count + 2, np.int64)
    for start in (facts.slices.start, facts.gpu.work.start, facts.of_every_step.gaps.start):
        spans += np.bincount(np.searchsorted(border, start, side="right"), minlength=steps.count + 2)
    spans = spans[1:-1]
    first = last = int(steps.typical_rows[facts.steps.example])
    left = most_spans - spans[first]
    while left > 0 and last - first + 1 < min(MOST_STEPS, steps.count):
        after = last + 1 < steps.count and (first == 0 or spans[last + 1] <= spans[first - 1])
        step = last + 1 if after else first - 1
        left -= spans[step]
        if left >= 0:
            first, last = min(first, step), max(last, step)
    return np.arange(first, last + 1)


class _LaneMaker:
    """Makes the lanes of what happens between two times, ns, and collects the texts that their codes point to."""

    def __init__(self, facts: Facts, begin: int, end: int) -> None:
        self.facts = facts
        self.begin = begin
        self.end = end
        self.labels = Codes[str]()  # of host activities; the names of events are codes of the trace
        self.details = Codes[str]()

    def host_lanes(self) -> list[_Lane]:
        """The threads with most launches and events. The first ones also have a lane with their activities."""
        slices, first = self.facts.slices, self.facts.steps.thread
        rows = np.flatnonzero((slices.start < self.end) & (slices.end > self.begin))
        events = np.bincount(slices.thread[rows], minlength=first + 1)
        launches = np.bincount(slices.thread[rows[slices.kind[rows] == RUNTIME]], minlength=len(events))
        order = [int(thread) for thread in np.lexsort((-events, -launches)) if events[thread] and thread != first]
        lanes = []
        for place, thread in enumerate([first, *order][:MOST_THREADS]):
            if thread < 0:
                continue
            if place == 0 or (place == 1 and launches[thread] and self.facts.has_gpu):
                lanes.append(self._activities(thread))
            lanes.append(self._events(thread, rows[slices.thread[rows] == thread]))
        return lanes

    def _activities(self, thread: int) -> _Lane:
        """What a thread did: its phases in a CPU-only run, its activities in a run with a GPU."""
        found = activity_areas(self.facts, thread)
        shortest_gap = int(self.facts.step_ns * JOINED_SHARE)
        starts, ends, labels, categories = [], [], [], []
        for category, label, area in found:
            inside = joined(clip(area, self.begin, self.end), shortest_gap)
            starts.append(inside.start)
            ends.append(inside.end)
            labels.append(np.full(len(inside), len(self.facts.trace.names) + self.labels.of(label)))
            categories.append(np.full(len(inside), CATEGORY_CODE[category.key]))
        start, end = np.concatenate(starts), np.concatenate(ends)
        unknown = np.full(len(start), -1)
        columns = {
            "start": start,
            "duration": end - start,
            "name": np.concatenate(labels),
            "category": np.concatenate(categories),
            "place": unknown,
            "detail": unknown,
        }
        lane = _Lane("activity", *thread_title(self.facts, thread), thread, columns)
        return lane.take(np.argsort(start, kind="stable"))

    def idle_lane(self, steps: npt.NDArray[np.int64]) -> _Lane:
        """The GPU's idle gaps in these steps with their main cause, except the long ones, which are stalls. Empty
        without a GPU.
        """
        every = self.facts.of_every_step
        rows = _NONE
        if self.facts.has_gpu:
            long = long_gaps(every.gaps, every.steps, steps)
            rows = np.setdiff1d(np.flatnonzero(np.isin(every.gaps.step, steps)), long)
        causes = every.idle.main_causes(rows) if len(rows) else []
        name = [len(self.facts.trace.names) + self.labels.of(every.label(cause)) for cause in causes]
        unknown = np.full(len(rows), -1)
        columns = {
            "start": every.gaps.start[rows],
            "duration": every.gaps.end[rows] - every.gaps.start[rows],
            "name": np.array(name, np.int64),
            "category": np.array([CATEGORY_CODE[cause.key] for cause in causes], np.int64),
            "place": unknown,
            "detail": unknown,
        }
        return _Lane("idle", "GPU idle", "shorter", -1, columns)

    def _events(self, thread: int, rows: npt.NDArray[np.intp]) -> _Lane:
        """The events of a thread, outermost first: annotations, operators, calls of the runtime, Python frames."""
        facts, slices = self.facts, self.facts.slices
        specific = specific_categories(facts, rows)
        kind = np.array([CATEGORY_CODE[_OF_KIND[kind].key] for kind in range(RUNTIME + 1)])[slices.kind[rows]]
        columns = {
            "start": slices.start[rows],
            "duration": slices.end[rows] - slices.start[rows],
            "name": slices.name[rows],
            "category": np.where(specific >= 0, specific, kind),
            "place": facts.call_sites.of(rows),
            "detail": self._shapes(np.where(slices.kind[rows] == OP, slices.row[rows], -1)),
        }
        return _Lane("thread", *thread_title(self.facts, thread), thread, columns)

    def _shapes(self, ops: npt.NDArray[np.integer]) -> I8:
        """Codes of the shapes and types of operators (rows of trace.ops, -1: no operator)."""
        table, texts = self.facts.trace.ops, self.facts.trace.texts
        out = np.full(len(ops), -1)
        known = np.flatnonzero(ops >= 0)
        dims, types = table.dims[ops[known]], table.types[ops[known]]
        known, dims, types = known[dims >= 0], dims[dims >= 0], types[dims >= 0]
        first, group = group_rows(dims, types)
        codes = [
            self.details.of(argument_text(*(texts[code] if code >= 0 else "" for code in pair)))
            for pair in zip(dims[first].tolist(), types[first].tolist(), strict=True)
        ]
        out[known] = np.array(codes, np.int64)[group] if codes else -1
        return out

    def stream_lanes(self) -> list[_Lane]:
        """The work of each stream, named after the kind with most time; of each GPU compute first, then the busiest."""
        gpu = self.facts.gpu
        rows = np.flatnonzero(gpu.work.meets(self.begin, self.end))
        kinds = np.where(gpu.is_communication[rows], 1, np.where(gpu.is_kernel[rows], 0, 2))
        streams, stream = numbered(gpu.work.queue[rows])
        busy = np.zeros((len(streams), len(STREAM_WORK)))
        np.add.at(busy, (stream, kinds), gpu.work.duration[rows])
        total, main = busy.sum(axis=1), busy.argmax(axis=1)
        device = device_of_queue(streams)
        most = busiest_lanes(total, device, MOST_STREAMS)
        lanes = []
        for number in most[np.lexsort((-total[most], main[most], device[most]))].tolist():
            mine = stream == number
            first = rows[mine][0]
            title = f"{gpu.device_name(first)} {list(STREAM_WORK.values())[main[number]]}"
            columns = self._work(rows[mine], kinds[mine])
            lanes.append(_Lane("stream", title, f"stream {gpu.work.stream[first]}", -1, columns))
        return lanes

    def _work(self, rows: npt.NDArray[np.intp], kinds: npt.NDArray[np.integer]) -> dict[str, I8]:
        facts, work, links = self.facts, self.facts.gpu.work, self.facts.links
        launch, runtime = links.launch[rows], facts.trace.runtime
        captured = facts.graph_origins.op_slice[rows]
        op_slice = np.where(captured >= 0, captured, links.op_slice[rows])
        op = np.where(op_slice >= 0, facts.slices.row[op_slice] if len(facts.slices) else -1, -1)
        known = launch >= 0
        called = np.where(known, runtime.start[launch] if len(runtime) else 0, 0)
        delay = np.where(known, work.start[rows] - called, -1)
        return {
            "start": work.start[rows],
            "duration": work.duration[rows],
            "name": work.name[rows],
            "category": np.array([CATEGORY_CODE[kind] for kind in STREAM_WORK])[kinds],
            "place": facts.sites_of_work(rows),
            "detail": self._sizes(rows),
            "operator": np.where(op_slice >= 0, facts.slices.name[op_slice] if len(facts.slices) else -1, -1),
            "operator_detail": self._shapes(op),
            "launch_thread": np.where(known, runtime.thread[launch] if len(runtime) else -1, -1),
            "launch_delay": np.maximum(delay, -1),
        }

    def _sizes(self, rows: npt.NDArray[np.intp]) -> I8:
        """Codes of the launch dimensions of kernels and the sizes of copies."""
        work = self.facts.gpu.work
        of_kernel = work.kind[rows] == KERNEL
        columns = [*work.grid[rows].T, *work.block[rows].T]
        first, group = group_rows(of_kernel, np.where(of_kernel, 0, work.bytes[rows]), *columns)
        return np.array([self._size(int(row)) for row in rows[first]], np.int64)[group] if len(rows) else rows

    def _size(self, row: int) -> int:
        work = self.facts.gpu.work
        if work.kind[row] != KERNEL:
            return self.details.of(size(int(work.bytes[row]))) if work.bytes[row] >= 0 else -1
        grid, block = ("×".join(map(str, part[row].tolist())) for part in (work.grid, work.block))
        return self.details.of(f"grid {grid}, block {block}") if work.grid[row, 0] > 0 else -1

    def coded(self, lanes: list[_Lane], zero: int) -> tuple[dict[str, Any], list[I8]]:
        """The lists of texts, the unit of times, and the columns of all lanes as SpanTable has them."""
        trace, sites = self.facts.trace, self.facts.call_sites.sites
        events = {name: np.concatenate([lane.columns[name] for lane in lanes] or [_NONE]) for name in COLUMNS}
        streams = [lane for lane in lanes if lane.kind == "stream"]
        work = {name: np.concatenate([lane.columns[name] for lane in streams] or [_NONE]) for name in STREAM_COLUMNS}
        names, name = numbered(np.concatenate((events["name"], work["operator"])))
        unknown = int(len(names) > 0 and names[0] < 0)  # operators that are not known come first
        every_name = [*trace.names, *self.labels.values()]
        used = [shown_frame(every_name[code]) for code in names[unknown:]]
        in_order = sorted(range(len(used)), key=used.__getitem__)  # not in the order of the file's events
        used = [used[place] for place in in_order]
        name = np.concatenate([np.arange(unknown), np.argsort(in_order) + unknown]).astype(np.int64)[name]
        places, place = numbered(np.append(events["place"], -1))
        categories, events["category"] = numbered(events["category"])
        thread_lanes = np.full(len(trace.threads) + 1, 0)
        for index, lane in enumerate(lanes):
            if lane.kind == "thread":
                thread_lanes[lane.thread] = index + 1
        before = np.concatenate([np.append(zero, lane.columns["start"])[:-1] for lane in lanes] or [_NONE])
        count = len(events["name"])
        start, delay = events["start"] - before, work["launch_delay"]
        # A trace in microseconds has multiples of 1,000, which would fill two bytes more.
        tick = max(1, int(np.gcd.reduce(np.concatenate((start, events["duration"], delay[delay > 0])))))
        events |= {
            "start": start // tick,
            "duration": events["duration"] // tick,
            "name": name[:count] - unknown,
            "place": place[:-1],
            "detail": events["detail"] + 1,
        }
        work |= {
            "operator": name[count:] - unknown + 1,
            "operator_detail": work["operator_detail"] + 1,
            "launch_thread": thread_lanes[work["launch_thread"]],
            "launch_delay": np.where(delay < 0, -1, delay // tick) + 1,
        }
        of_kernels = np.zeros(len(used), bool)
        of_kernels[events["name"][count - len(work["operator"]) :]] = True
        labels = [short_name(text) if kernel else text for text, kernel in zip(used, of_kernels, strict=True)]
        fields = {
            "names": used,
            "labels": ["" if label == text else label for label, text in zip(labels, used, strict=True)],
            "categories": [CATEGORIES[code] for code in categories],
            "places": [sites[site] for site in places[1:]],
            "details": self.details.values(),
            "tick_ns": tick,
        }
        return fields, [*(events[name] for name in COLUMNS), *(work[name] for name in STREAM_COLUMNS)]


def _longest(lanes: list[_Lane], most: int) -> list[_Lane]:
    """The lanes with their longest spans, `most` in all. Work of the GPU and activities come before events."""
    kept: dict[int, _Lane] = {}
    for events in (False, True):
        group = [index for index, lane in enumerate(lanes) if (lane.kind == "thread") == events]
        duration = np.concatenate([lanes[index].columns["duration"] for index in group] or [_NONE])
        chosen = np.ones(len(duration), bool)
        if len(duration) > most:
            chosen[np.argsort(-duration, kind="stable")[most:]] = False
        most -= int(chosen.sum())
        at = 0
        for index in group:
            kept[index] = lanes[index].take(np.flatnonzero(chosen[at : at + len(lanes[index])]))
            at += len(lanes[index])
    return [kept[index] for index in range(len(lanes))]
