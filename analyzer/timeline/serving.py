"""Steps of a serving engine: where its annotations mark them, and what prefill and decode take."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import Intervals, union
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.vocabulary.phases.serving_steps import (
    PHASES,
    Engine,
    Phase,
    ServingStep,
    engine_of_frame,
    serving_step,
)

LONG_PAUSE = 10  # median steps: in a longer pause, the engine waited for requests
MIN_RATED = 2  # steps: a single one is cut at both ends, and may have waited for the step before the recording


class ServingMarks(Struct, frozen=True):
    """The annotated steps on the engine's thread, in order of time: `start` and `end` in ns, shape (len(steps),).

    An annotation covers the forward pass alone, until `pass_end`. A step goes on to the next one, because scheduling
    and sampling are part of it.
    """

    steps: list[ServingStep]
    start: I8
    pass_end: I8
    end: I8
    thread: int  # index into trace.threads

    @property
    def names(self) -> list[str]:
        return [f"{step.phase} {i}" for i, step in enumerate(self.steps, 1)]

    @property
    def kind(self) -> I8:
        """The number of each step's phase: prefill and decode are no steps of one kind."""
        return np.array([PHASES.index(step.phase) for step in self.steps])


class ServingPhase(Struct, frozen=True):
    """The steps of one phase. Figures are medians over them."""

    phase: Phase
    steps: int
    step_ns: float
    total_ns: int  # of all these steps
    tokens_per_step: float | None
    tokens_per_s: float | None


class RequestTimes(Struct, frozen=True):
    """What requests see of the steps, as far as the trace shows it; None where it does not.

    `first_token_ns`: the median step that computes a prompt, so the time to the first token without the queue, and at
    least: a long prompt may take several steps. Between two tokens of a request is the time from one step with decodes
    to the next: the median, the longest, and the part of all that in which steps only compute prompts. Neither is known
    of speculative decoding, nor across a pause in which the engine waited for requests.

    `requests` is the mean number in a step, by its time without such a pause. `idle_share`: the part of all steps in
    which the GPU is idle between two forward passes. `waits` are the pauses without requests.
    """

    first_token_ns: float | None
    between_tokens_ns: float | None
    longest_between_tokens_ns: float | None
    prompts_between_share: float | None
    requests: float
    most_requests: int
    idle_share: float | None
    waits: int
    waits_share: float


class Serving(Struct, frozen=True):
    """What the annotations of a serving engine say about its steps; `phases` by their time, longest first."""

    engine: Engine
    phases: list[ServingPhase]
    times: RequestTimes

    def steps(self, phase: Phase) -> int:
        return sum(one.steps for one in self.phases if one.phase == phase)


def serving_marks(trace: Trace) -> ServingMarks | None:
    """The steps that vLLM and SGLang annotate; None if there are none."""
    table = trace.annotations
    found = {code: step for code in distinct_values(table.name).tolist() if (step := serving_step(trace.names[code]))}
    passes = [code for code, step in found.items() if not step.draft]
    rows = np.flatnonzero(np.isin(table.name, passes) & (table.duration > 0))
    if not len(rows):
        return None
    thread = int(np.bincount(table.thread[rows]).argmax())
    rows = rows[table.thread[rows] == thread]
    ends = np.maximum.accumulate(table.end_of(rows))
    rows = rows[np.append(True, table.start[rows][1:] >= ends[:-1])]  # two engines' patterns may nest: the outer one
    start = table.start[rows]
    last = max(int(table.end_of(rows[-1:])[0]), _last_launch(trace, int(start[-1])))
    steps = [found[code] for code in table.name[rows].tolist()]
    return ServingMarks(steps, start, table.end_of(rows), np.append(start[1:], last), thread)


def find_serving(trace: Trace, start: I8, duration: I8) -> Serving | None:
    """Prefill and decode of the measured steps, ns; None if no serving engine ran the steps."""
    marks = serving_marks(trace)
    if marks is None:
        return None
    row = np.minimum(np.searchsorted(marks.start, start), len(marks.start) - 1)
    if not (marks.start[row] == start).all():
        return None
    steps = [marks.steps[i] for i in row.tolist()]
    phases = [_phase(phase, steps, duration) for phase in dict.fromkeys(step.phase for step in steps)]
    engines = [step.engine for step in steps]
    engine = find_engine(trace) or engines[0]
    busy = union(trace.gpu.start, trace.gpu.end) if len(trace.gpu) else None
    times = _request_times(steps, start, marks.pass_end[row], duration, busy)
    return Serving(engine, sorted(phases, key=lambda phase: -phase.total_ns), times)


def find_engine(trace: Trace) -> Engine | None:
    """The serving engine whose annotations or Python frames the trace holds; None if there are none.

    Frames come first: SGLang on ROCm also writes annotations in the form of vLLM.
    """
    python = (trace.names[code] for code in distinct_values(trace.python.name).tolist())
    framed = next((engine for name in python if (engine := engine_of_frame(name))), None)
    marks = serving_marks(trace) if framed is None else None
    return marks.steps[0].engine if marks is not None else framed


def _phase(phase: Phase, steps: list[ServingStep], duration: I8) -> ServingPhase:
    mine = np.array([step.phase == phase for step in steps])
    known = np.array([step.tokens is not None for step in steps]) & mine
    tokens = np.array([step.tokens or 0 for step in steps])
    requests = np.array([step.requests for step in steps])
    # Speculative decoding computes several tokens per request, and the annotation does not say how many are accepted.
    speculative = phase == "decode" and bool((tokens != requests)[known].any())
    rated = known.sum() >= MIN_RATED and not speculative and phase != "idle"
    rates = tokens[known] * 1e9 / np.maximum(duration[known], 1)
    return ServingPhase(
        phase=phase,
        steps=int(mine.sum()),
        step_ns=median(duration[mine]),
        total_ns=int(duration[mine].sum()),
        tokens_per_step=median(tokens[known]) if known.any() else None,
        tokens_per_s=median(rates) if rated else None,
    )


def _request_times(
    steps: list[ServingStep], start: I8, pass_end: I8, duration: I8, busy: Intervals | None
) -> RequestTimes:
    phase, several = np.array([step.phase for step in steps]), len(steps) >= MIN_RATED
    requests = np.array([step.requests for step in steps])
    pause = (start[1:] - pass_end[:-1]).clip(0)
    if busy is not None:  # the GPU may still work on the pass before
        pause = pause - busy.within(pass_end[:-1], start[1:])
    waits = (pause > LONG_PAUSE * median(duration)) | (phase[:-1] == "idle") | (phase[1:] == "idle")
    prompts = np.isin(phase, ("prefill", "mixed")) & ~np.append(waits, False)
    decodes = np.flatnonzero(np.isin(phase, ("decode", "mixed")))
    speculative = any(step.phase == "decode" and step.decode_tokens != step.requests for step in steps)
    waited = np.append(0, np.cumsum(waits))
    connected = waited[decodes[1:]] == waited[decodes[:-1]]
    between = np.diff(start[decodes])[connected]
    only_prompts = np.append(0, np.cumsum(np.where(phase == "prefill", duration, 0)))
    inside = (only_prompts[decodes[1:]] - only_prompts[decodes[:-1]])[connected]
    timed = several and not speculative
    total_ns = max(1, int(duration.sum()))
    served_ns = duration - np.append(np.where(waits, pause, 0), 0)
    return RequestTimes(
        first_token_ns=median(duration[prompts]) if timed and prompts.any() else None,
        between_tokens_ns=median(between) if timed and len(between) else None,
        longest_between_tokens_ns=float(between.max()) if timed and len(between) else None,
        prompts_between_share=float(inside.sum() / between.sum()) if timed and between.any() else None,
        requests=float((requests * served_ns).sum() / max(1, served_ns.sum())),
        most_requests=int(requests.max()),
        idle_share=float(pause[~waits].sum() / total_ns) if several and busy is not None else None,
        waits=int(waits.sum()),
        waits_share=float(pause[waits].sum() / total_ns),
    )


def _last_launch(trace: Trace, since: int) -> int:
    """When the host was done with its last launch of recorded work since a time, ns; 0 if there is none."""
    runtime = trace.runtime
    launches = (runtime.start >= since) & np.isin(runtime.correlation, trace.gpu.correlation[trace.gpu.correlation > 0])
    return int(runtime.end[launches].max(initial=0))
