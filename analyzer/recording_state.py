"""The state of a recording that explains most of its idle time, and so hides what limits a steady step."""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct

from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.trace_quality import TraceQuality
from traceopt.analyzer.vocabulary.causes.table import COMPILE, DISPATCH, LONG_WORK, UNRECORDED
from traceopt.result.words.quantities import counted, percent

StateName = Literal[
    "few_events", "lost_kernels", "hidden_work", "cold_start", "compile", "graph_capture", "untraced", "edges"
]

DOMINANT_SHARE = 0.5  # of the idle time; the rest says nothing about a step that was not recorded
RECURRING_SHARE = 0.05  # of a step: with less of it, a step counts as one without it
MIN_RECURRING = 2  # steps that have it after one without it: then it is no start-up
IDLE_SHARE = 0.20  # of the step; a GPU that is busier shows what its own work costs

_SENTENCES: dict[StateName, str] = {
    "few_events": "The file has only {count}, too few for a step. Record several complete steps.",
    "lost_kernels": "The file lacks the kernels of {share} of its launches, so its idle time is not real.",
    "hidden_work": (
        "The host waits for the GPU for {share} of {unit}, but the file shows no GPU work meanwhile. That work is "
        "missing, so the idle time is not real."
    ),
    "cold_start": (
        "This is a cold start: first calls and kernel loading take {share} of {unit}. Record again after a few warm-up "
        "steps."
    ),
    "compile": (
        "This is not steady state: compilation takes {share} of {unit}. Record again after a few warm-up steps."
    ),
    "graph_capture": (
        "This is not steady state: capturing graphs takes {share} of {unit}. Record again after a few warm-up steps."
    ),
    "untraced": (
        "For {share} of {unit} the GPU waits while the launching thread has no event. Record again with "
        "with_stack=True to see what runs then."
    ),
    "edges": (
        "For {share} of {unit} the GPU waits for its first work or has finished its last. That may happen only once. "
        "Record several steps."
    ),
}
# Warm-up steps or stacks would show what a steady step does, so another recording comes before any fix.
_RECORD_AGAIN = ("cold_start", "compile", "graph_capture", "untraced")
# No idle time is real, or none repeats. The other states leave the rest of a marked step as it is.
_ALL_IDLE_TIME = ("lost_kernels", "hidden_work", "edges")


class RecordingState(Struct, frozen=True):
    """`share`: idle time of the typical step that the state explains. `sentence` is for people.

    `hides`: what is unknown of a steady step, and so has no price. "waits": how long the GPU waits for the host and for
    other ranks.
    """

    name: StateName
    share: float
    sentence: str
    hides: Literal["nothing", "waits", "everything"]

    @property
    def record_again(self) -> bool:
        """Whether another recording comes before any fix."""
        return self.name in _RECORD_AGAIN


def find_state(quality: TraceQuality, of_every_step: TraceQuality) -> RecordingState | None:
    """The state that explains most of the idle time of the typical step; None if the GPU is busy or no state does. A
    step that is left out of the typical ones may show that idle time recurs.
    """
    gaps, count = quality.gaps, len(quality.gpu.work)
    idle_ns = _typical_ns(quality, gaps.end - gaps.start)
    step_ns = quality.steps.window_ns / quality.steps.count
    if not count or quality.sampled_share is not None or idle_ns < IDLE_SHARE * step_ns:
        return None
    if quality.has_few_events:
        return _state("few_events", quality, idle_ns / step_ns)
    if quality.lost_work_ns >= DOMINANT_SHARE * quality.gpu.idle.total:
        return _state("lost_kernels", quality, quality.kernels.share)
    hidden_ns = _typical_ns(quality, quality.hidden_work)
    if hidden_ns >= DOMINANT_SHARE * idle_ns:
        return _state("hidden_work", quality, hidden_ns / step_ns)
    once = _idle_once(quality, of_every_step)
    if _typical_ns(quality, sum(once.values(), np.zeros(len(gaps), np.int64))) < DOMINANT_SHARE * idle_ns:
        return None
    explained = {name: _typical_ns(quality, amount) for name, amount in once.items()}
    largest = max(explained, key=lambda name: explained[name])
    return _state(largest, quality, explained[largest] / step_ns)


def _state(name: StateName, quality: TraceQuality, share: float) -> RecordingState:
    unmarked = quality.steps.source == "window"
    unit = "the recording" if unmarked else "the step"
    sentence = _SENTENCES[name].format(
        share=percent(share), unit=unit, count=counted(len(quality.gpu.work), "GPU event")
    )
    waits: Literal["nothing", "waits"] = "waits" if unmarked or name in _ALL_IDLE_TIME else "nothing"
    return RecordingState(name, share, sentence, "everything" if name == "few_events" else waits)


def _typical_ns(quality: TraceQuality, amount: I8) -> float:
    """Time per gap in the typical step."""
    return float(amount.sum()) / quality.steps.count


def _idle_once(quality: TraceQuality, of_every_step: TraceQuality) -> dict[StateName, I8]:
    """Idle time of each gap that a steady step may not have, by state. No time counts twice."""
    gaps, idle = quality.gaps, quality.idle
    ordinary = [idle.of_gaps(cause) for cause in (*DISPATCH, *LONG_WORK) if cause is not UNRECORDED]
    dispatch = sum(ordinary, np.zeros(len(gaps), np.int64))
    captured = np.minimum(quality.captures.within(gaps.start, gaps.end), dispatch)
    edge = quality.before_or_after_work
    cold, compiled = quality.cold, idle.of_gaps(COMPILE)
    return {
        "cold_start": np.where(_recurs(of_every_step, of_every_step.cold), 0, cold),
        "compile": np.where(_recurs(of_every_step, of_every_step.idle.of_gaps(COMPILE)), 0, compiled),
        "graph_capture": captured,
        "untraced": idle.of_gaps(UNRECORDED),
        "edges": np.where(edge, dispatch - captured, 0),
    }


def _recurs(quality: TraceQuality, amount: I8) -> bool:
    """Whether several steps have such idle time after one without it, so that warm-up steps would not help."""
    steps = quality.steps
    has = steps.per_step(quality.gaps.step, amount) >= RECURRING_SHARE * steps.duration
    return bool(has[np.cumsum(~has) > 0].sum() >= MIN_RECURRING)
