"""Lanes of the timeline: which threads and streams they show, what a thread did, the category of each span."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.intervals import Intervals, intersect, merge, subtract, union
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.vocabulary.causes.span_categories import (
    COPY,
    CPU,
    GPU_COMPUTE,
    SPAN_CATEGORIES,
    TRANSFER,
    WAIT,
    SpanCategory,
)
from traceopt.analyzer.vocabulary.causes.table import DISPATCH, HOST_ACTIVITIES, IDLE_CAUSES, PYTHON, UNTRACED
from traceopt.analyzer.vocabulary.library_frames import is_engine_frame

JOINED_SHARE = 0.002  # of the step: host activities of one kind with smaller gaps become one bar
STREAM_WORK = {GPU_COMPUTE.key: "compute", TRANSFER.key: "communication", COPY.key: "copies"}
# Idle gaps are named after their cause, all other spans after their category.
CATEGORIES = [*dict.fromkeys([*(row.key for row in SPAN_CATEGORIES), *(cause.key for cause in IDLE_CAUSES)])]
CATEGORY_CODE = {key: code for code, key in enumerate(CATEGORIES)}
# The category of each activity that says more than the kind of its event; the last one stands for no activity.
SPECIFIC_CATEGORY = np.array(
    [-1 if cause.span is CPU or cause in DISPATCH else CATEGORY_CODE[cause.span.key] for cause in HOST_ACTIVITIES]
    + [-1]
)


def thread_title(facts: Facts, thread: int) -> tuple[str, str]:
    """What a thread is, and its number."""
    info = facts.trace.threads[thread]
    detail = f"thread {info.tid}"
    if thread == facts.steps.thread:
        return "CPU main thread", detail
    computes_gradients = bool((facts.regions.backward & (facts.slices.thread == thread)).any())
    return "CPU autograd thread" if computes_gradients else info.name or "CPU thread", detail


def activity_areas(facts: Facts, thread: int) -> list[tuple[SpanCategory, str, Intervals]]:
    """Category, label and area of what a thread did: phases of the main thread of a CPU-only run, else activities."""
    if facts.has_gpu:
        areas = facts.host_flow.own(thread)
        waiting = intersect(areas[PYTHON], _run_backward(facts, thread))
        found = [(cause.span, facts.label(cause), subtract(area, waiting)) for cause, area in areas.items()]
        return [*found, (WAIT, "Waiting for the backward pass", waiting)]
    areas = facts.of_every_step.cpu_phases.areas
    return [(phase.span, facts.label(phase), area) for phase, area in areas.items() if phase is not UNTRACED]


def specific_categories(facts: Facts, rows: npt.NDArray[np.integer]) -> I8:
    """The code of the category of each of these slices that says more than the kind of its event; -1: nothing does."""
    category: I8 = SPECIFIC_CATEGORY[facts.host.activity[rows]]
    if facts.has_gpu:
        category[_waits_for_backward(facts)[facts.slices.name[rows]]] = CATEGORY_CODE[WAIT.key]
    return category


def _waits_for_backward(facts: Facts) -> npt.NDArray[np.bool_]:
    """Whether each name of the trace is the call that waits for the threads of the autograd engine."""
    return np.array([is_engine_frame(name) for name in facts.trace.names], bool)


def _run_backward(facts: Facts, thread: int) -> Intervals:
    """When a thread is in the call that waits for the threads of the autograd engine."""
    slices = facts.slices
    rows = np.flatnonzero((slices.thread == thread) & _waits_for_backward(facts)[slices.name])
    return union(slices.start[rows], slices.end[rows])


def busiest_lanes(busy: npt.NDArray[Any], device: npt.NDArray[np.integer], most: int) -> npt.NDArray[np.intp]:
    """The lanes to show: the busiest of each device, then the second of each, and so on."""
    order = np.lexsort((-busy, device))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) - np.searchsorted(device[order], device[order])
    return np.lexsort((-busy, place))[:most]


def joined(area: Intervals, gap_ns: int) -> Intervals:
    """Intervals with the gaps shorter than `gap_ns` closed."""
    if len(area) < 2:
        return area
    short = area.start[1:] - area.end[:-1] < gap_ns
    return merge(area, Intervals(area.end[:-1][short], area.start[1:][short])) if short.any() else area
