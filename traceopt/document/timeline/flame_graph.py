"""The call tree of the main thread in the shown step: host time, and the GPU time that each line launched."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.grouping import group_rows
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP, PYTHON, RUNTIME
from traceopt.analyzer.timeline.marks.marks import PROFILER_STEP
from traceopt.analyzer.vocabulary.causes.span_categories import COPY, GPU_COMPUTE, TRANSFER
from traceopt.analyzer.vocabulary.kernels.kernel_labels import short_name
from traceopt.analyzer.vocabulary.python_frames import is_library, shown_frame
from traceopt.document.timeline.lanes import CATEGORY_CODE, specific_categories
from traceopt.result.sections.timeline_rows import FlameGraph, FlameKind, FlameNode
from traceopt.result.words.rounding import us

MOST_NODES = 1_500
SMALLEST_SHARE = 0.0005  # of the step, or of its GPU time: smaller nodes are narrower than a pixel
MOST_DEPTH = 200
_KINDS: dict[int, FlameKind] = {ANNOTATION: "annotation", OP: "operator", RUNTIME: "runtime"}
_CATEGORIES = list(CATEGORY_CODE)
_KERNEL = RUNTIME + 1
_NONE = -1


def flame_graph(facts: Facts) -> FlameGraph | None:
    """None if the shown step has no Python frames with times."""
    steps, slices = facts.steps, facts.slices
    index = steps.example
    begin, end = int(steps.start[index]), int(steps.end[index])
    mine = slices.of_thread(steps.thread)
    rows = np.arange(mine.start, mine.stop)
    rows = rows[(slices.start[rows] < end) & (slices.end[rows] > begin)]
    marks = np.array([PROFILER_STEP.match(name) is not None for name in facts.trace.names] or [False])
    rows = rows[~marks[slices.name[rows]]]
    if not facts.frames_recorded_with_times or not (slices.kind[rows] == PYTHON).any():
        return None
    tree = _Tree(facts, rows, begin, end)
    launched = tree.add_kernels()
    return tree.graph(steps.names[index], begin, end, launched)


class _Tree:
    """Slices with the same names from the root down are one node. Arrays have shape (nodes,); parents come first."""

    def __init__(self, facts: Facts, rows: npt.NDArray[np.integer], begin: int, end: int) -> None:
        slices = facts.slices
        self._facts = facts
        self._begin, self._end = begin, end
        self._node_of = np.full(len(slices) + 1, _NONE)  # the last entry stands for no slice
        parents, names, kinds, totals = [], [], [], []
        length = np.minimum(slices.end[rows], end) - np.maximum(slices.start[rows], begin)
        parent_slice = slices.parent[rows]
        inside = np.zeros(len(slices) + 1, bool)
        inside[rows] = True
        level = np.flatnonzero(~inside[parent_slice])
        waiting = np.flatnonzero(inside[parent_slice])
        count = 0
        for _ in range(MOST_DEPTH):
            if not len(level):
                break
            here = rows[level]
            above = self._node_of[parent_slice[level]]
            first, group = group_rows(above, slices.name[here], slices.kind[here].astype(np.int64))
            self._node_of[here] = count + group
            parents.append(above[first])
            names.append(slices.name[here[first]].astype(np.int64))
            kinds.append(slices.kind[here[first]].astype(np.int64))
            totals.append(np.bincount(group, weights=length[level], minlength=len(first)))
            count += len(first)
            reached = self._node_of[parent_slice[waiting]] >= 0
            level, waiting = waiting[reached], waiting[~reached]
        self.parent, self.name, self.kind = (np.concatenate(part) for part in (parents, names, kinds))
        self.total = np.concatenate(totals).astype(np.int64)
        self.self_time = self._minus_children()
        self.gpu = np.zeros(count, np.int64)
        self.category = self._categories(rows, length)

    def _categories(self, rows: npt.NDArray[np.integer], length: I8) -> I8:
        """For each node, the code of its category in the timeline: the activity of its longest slice."""
        order = rows[np.argsort(length, kind="stable")]
        order = order[self._node_of[order] >= 0]
        longest = np.zeros(len(self.total), np.int64)
        longest[self._node_of[order]] = order  # the last one counts
        return specific_categories(self._facts, longest) if len(longest) else longest

    def _minus_children(self) -> I8:
        child = self.parent >= 0
        below = np.bincount(self.parent[child], weights=self.total[child], minlength=len(self.total))
        return np.maximum(0, self.total - below.astype(np.int64))

    def add_kernels(self) -> tuple[int, int, int]:
        """Adds a node for each kernel below the call that launched it, or below the forward operator of backward work.
        Returns the GPU time that the step launched, in ns: all of it, the part that has a node, and of that the part of
        backward passes below forward operators.
        """
        gpu, slices = self._facts.trace.gpu, self._facts.slices
        launch = self._facts.links.launch_slice
        at = slices.start[launch] if len(slices) else np.zeros(len(launch), np.int64)
        rows = np.flatnonzero((launch >= 0) & (at >= self._begin) & (at < self._end))
        node = self._node_of[launch[rows]]
        elsewhere = np.flatnonzero(node < 0)  # backward work, which autograd's thread launches
        node[elsewhere] = self._node_of[self._facts.call_sites.forward_of(launch[rows[elsewhere]])]
        everything = int(gpu.duration[rows].sum())
        backward = int(gpu.duration[rows[elsewhere[node[elsewhere] >= 0]]].sum())
        rows, node = rows[node >= 0], node[node >= 0]
        node = self._below_captures(rows, node)
        if not len(rows):
            return everything, 0, 0
        first, group = group_rows(node, gpu.name[rows])
        time = np.bincount(group, weights=gpu.duration[rows], minlength=len(first)).astype(np.int64)
        zeros = np.zeros(len(first), np.int64)
        self.parent = np.concatenate((self.parent, node[first]))
        self.name = np.concatenate((self.name, gpu.name[rows[first]].astype(np.int64)))
        self.kind = np.concatenate((self.kind, np.full(len(first), _KERNEL)))
        self.total, self.self_time = np.concatenate((self.total, zeros)), np.concatenate((self.self_time, zeros))
        self.gpu = np.concatenate((self.gpu, time))
        self.category = np.concatenate((self.category, self._category_of_work()[rows[first]]))
        for index in range(len(self.parent) - 1, -1, -1):  # children come after their parents
            if self.parent[index] >= 0:
                self.gpu[self.parent[index]] += self.gpu[index]
        return everything, int(gpu.duration[rows].sum()), backward

    def _category_of_work(self) -> I8:
        """The code of the category of each row of `trace.gpu`."""
        work, everything = self._facts.gpu, self._facts.trace.gpu
        out = np.full(len(everything), CATEGORY_CODE[COPY.key])
        out[work.is_kernel] = CATEGORY_CODE[GPU_COMPUTE.key]
        out[work.is_communication] = CATEGORY_CODE[TRANSFER.key]
        return out

    def _below_captures(self, rows: npt.NDArray[np.intp], node: I8) -> I8:
        """The nodes for rows of `trace.gpu`, given those of their launches. Work of a CUDA graph whose capture is known
        gets the path of its call inside the capture, as nodes without host time below the launch of the graph.
        """
        slices, origins = self._facts.slices, self._facts.graph_origins
        captured = np.flatnonzero(origins.launch_slice[rows] >= 0)
        first, group = group_rows(node[captured], origins.launch_slice[rows[captured]])
        added: dict[tuple[int, int, int], int] = {}
        below = []
        for row, parent in zip(rows[captured[first]].tolist(), node[captured[first]].tolist(), strict=True):
            path: list[tuple[int, int]] = []
            call = int(origins.launch_slice[row])
            while call >= 0 and slices.start[call] >= origins.capture_start[row] and len(path) < MOST_DEPTH:
                if slices.kind[call] != RUNTIME:
                    path.append((int(slices.name[call]), int(slices.kind[call])))
                call = int(slices.parent[call])
            last = int(parent)
            for name, kind in reversed(path):
                last = added.setdefault((last, name, kind), len(self.parent) + len(added))
            below.append(last)
        out: I8 = node.copy()
        out[captured] = np.array(below, np.int64)[group]
        zeros = np.zeros(len(added), np.int64)
        parents, names, kinds = np.array(list(added), np.int64).reshape(-1, 3).T
        self.parent, self.name = np.concatenate((self.parent, parents)), np.concatenate((self.name, names))
        self.kind, self.gpu = np.concatenate((self.kind, kinds)), np.concatenate((self.gpu, zeros))
        self.total, self.self_time = np.concatenate((self.total, zeros)), np.concatenate((self.self_time, zeros))
        self.category = np.concatenate((self.category, zeros - 1))
        return out

    def graph(self, step: str, begin: int, end: int, launched: tuple[int, int, int]) -> FlameGraph:
        everything, here, backward = launched
        share = np.maximum(self.total / max(1, end - begin), self.gpu / max(1, here))
        order = np.argsort(-share, kind="stable")[:MOST_NODES]  # a parent's share is at least that of its children
        kept = np.sort(order[share[order] >= SMALLEST_SHARE])
        place = np.full(len(share) + 1, _NONE)
        place[kept] = np.arange(len(kept))
        names = self._facts.trace.names
        frames: dict[str, int] = {}
        nodes = []
        for node in kept.tolist():
            kind, name = int(self.kind[node]), names[self.name[node]]
            nodes.append(
                FlameNode(
                    parent=int(place[self.parent[node]]),
                    frame=frames.setdefault(_shown(kind, name), len(frames)),
                    kind=_kind(kind, name),
                    total_us=us(int(self.total[node])),
                    self_us=us(int(self.self_time[node])),
                    gpu_us=us(int(self.gpu[node])),
                    category=_CATEGORIES[self.category[node]] if self.category[node] >= 0 else "",
                )
            )
        return FlameGraph(
            step=step,
            duration_us=us(end - begin),
            gpu_us=us(everything) if self._facts.has_gpu else None,
            other_gpu_us=us(everything - here) if self._facts.has_gpu else None,
            left_out=len(share) - len(kept),
            frames=list(frames),
            nodes=nodes,
            backward_gpu_us=us(backward) if self._facts.has_gpu else None,
        )


def _shown(kind: int, name: str) -> str:
    if kind == PYTHON:
        return shown_frame(name)
    return short_name(name) if kind == _KERNEL else name


def _kind(kind: int, name: str) -> FlameKind:
    if kind == PYTHON:
        return "library" if is_library(name) else "user"
    return "kernel" if kind == _KERNEL else _KINDS[kind]
