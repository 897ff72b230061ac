"""Where the time of the whole run goes, from the ledger of `traceopt run`, and what takes much of it besides steps."""

from __future__ import annotations

from typing import Literal

import numpy as np

from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.run_log.step_drift import main_cause
from traceopt.analyzer.run_log.step_ledger import Ledger
from traceopt.analyzer.run_log.step_memory import UNKNOWN, StepMemory
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.steps import unusual
from traceopt.result.finding import Location
from traceopt.result.sections.run import RunMemory, RunPart, RunPartName, StepHistory, WholeRun
from traceopt.result.words.message import ms, percent
from traceopt.result.words.quantities import counted, in_sentence
from traceopt.result.words.rounding import share, us

MIN_LONG_STEPS = 3  # fewer may be one-off pauses: the sentence then leaves open what they are
MIN_OCCURRENCES = 2  # of an evaluation or a save: a single one says nothing about the run
LARGE_SHARE = 0.25  # of the run after its first step: what takes less is left to the table of the run's parts
CROWDED_SHARE = 0.1  # of the run: with a longer wait for cores, other programs may explain slower steps
FAR_SHORTER = 0.5  # times the other steps: recorded steps that are so short are not those of the run
LONG_RUN_NS = 60e9  # in a shorter one, start-up and the end say nothing about the training
MOST_LINES = 3
MOST_STRETCHES = 240  # of the charts of all steps
MIN_READINGS = 24  # of memory

_LABELS: dict[RunPartName, str] = {
    "steps": "Training steps",
    "evaluation": "Evaluation",
    "checkpoints": "Saving checkpoints",
    "recompiling": "Recompiling",
    "long_steps": "Other work in long steps",
    "startup": "Start-up with the first step",
    "end": "After the last step",
}
_BEFORE: dict[RunPartName, str] = {"long_steps": "ending at "}
_FEW_LONG_STEPS = (
    "{long} took {share} of the run after its first step{where}, the rest of the steps {steps}. More recorded steps "
    "would show whether that recurs."
)
_SENTENCES: dict[RunPartName, str] = {
    "evaluation": "{evaluation} takes {share} of the run after its first step{where}, the steps {steps}.",
    "checkpoints": "Saving checkpoints takes {share} of the run after its first step{where}, the steps {steps}.",
    "recompiling": "Recompiling takes {share} of the run after its first step{where}, the steps {steps}.",
    "startup": "Start-up with the first step takes {share} of the run, the other steps {steps}.",
    "long_steps": ("Other work in {long} takes {share} of the run after its first step{where}, the steps {steps}."),
    "end": "What follows the last step takes {share} of the run after its first step, the steps {steps}.",
}


def whole_run(facts: Facts) -> WholeRun | None:
    """The parts of the run, longest first; None if there is no ledger."""
    ledger = facts.captured.ledger
    if ledger is None:
        return None
    run = ledger.whole_run
    recompiled = facts.captured.compilation.recompilations if facts.captured.compilation is not None else ()
    recompiling_ns = min(sum(frame.total_ns or 0 for frame in recompiled), run.steps_ns)
    long_ns = ledger.long_extra_ns if ledger.long_for_other_work else 0
    long_ns = min(max(0, long_ns - recompiling_ns), run.steps_ns - recompiling_ns)
    amounts: dict[RunPartName, int] = {
        "steps": run.steps_ns - recompiling_ns - long_ns,
        "evaluation": run.evaluation_ns,
        "checkpoints": run.save_ns,
        "recompiling": recompiling_ns,
        "long_steps": long_ns,
        "startup": run.start_up_ns,
        "end": run.rest_ns,
    }
    start_up = facts.captured.start_up
    locations: dict[RunPartName, list[Location]] = {
        "startup": [part.lines[0].location for part in start_up.parts if part.lines] if start_up is not None else [],
        "evaluation": [place.location for place in ledger.evaluations],
        "checkpoints": [place.location for place in ledger.saved_at],
        "recompiling": [frame.site for frame in recompiled if frame.site is not None],
        "long_steps": [place.location for place in ledger.long_ends],
    }
    parts = [
        RunPart(name, _LABELS[name], us(ns), share(ns / run.total_ns), locations.get(name, [])[:MOST_LINES])
        for name, ns in amounts.items()
        if ns
    ]
    return WholeRun(
        us(run.total_ns),
        ledger.count,
        sorted(parts, key=lambda part: -part.us),
        None if ledger.core_wait_share is None else share(ledger.core_wait_share),
        _history(facts, ledger),
        _memory(facts.captured.step_memory),
        complete=not facts.captured.cut_short,
    )


def _history(facts: Facts, ledger: Ledger) -> StepHistory | None:
    drift, steps = facts.step_drift, ledger.usual
    if drift is None:
        return None
    own_ns = (ledger.step_ns - ledger.save_ns)[steps]
    edges = np.unique(np.linspace(0, len(steps), MOST_STRETCHES + 1).astype(np.int64))
    stretches = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    return StepHistory(
        steps[edges[:-1]].tolist(),
        [us(median(own_ns[first:last])) for first, last in stretches],
        drift.change.step if drift.change is not None else None,
    )


def _memory(read: StepMemory | None) -> list[RunMemory]:
    if read is None:
        return []
    found = []
    columns: tuple[tuple[Literal["device", "process"], I8], ...] = (
        ("device", read.device_bytes),
        ("process", read.process_bytes),
    )
    for of, values in columns:
        known = np.flatnonzero(values != UNKNOWN)
        if len(known) < MIN_READINGS:
            continue
        edges = np.unique(np.linspace(0, len(known), MOST_STRETCHES + 1).astype(np.int64))[:-1]
        highest = np.maximum.reduceat(values[known], edges)
        found.append(RunMemory(of, read.steps[known][edges].tolist(), highest.tolist()))
    return found


def of_the_run(facts: Facts, run: WholeRun | None, saved_share: float) -> tuple[str, str]:
    """What is said of the whole run before the step's verdict, and what after it; "" if it is nothing. What costs more
    than the fixes save comes before. `saved_share`: of the step, by all fixes of the plan.
    """
    before, after = _beside_the_steps(facts, run, saved_share)
    steps = (tell(facts, saved_share) for tell in (_slower_steps, _long_steps, _regular_steps, _too_few_cores))
    said = " ".join(filter(None, (before, *steps))) or _unlike_others(facts)
    return said, after


def _unlike_others(facts: Facts) -> str:
    """Says that the recorded steps are far shorter than the others, as while a queue of batches lasts that was filled
    before the first step. Not if other programs may explain it.
    """
    stretch, ledger = facts.captured.stretch, facts.captured.ledger
    if stretch is None or ledger is None or (ledger.core_wait_share or 0.0) >= CROWDED_SHARE or stretch > FAR_SHORTER:
        return ""
    return f"The recorded steps took {percent(stretch)} of the time of other steps, which do more: record later ones."


def _long_steps(facts: Facts, saved_share: float) -> str:
    """Says that some steps take much of a recording without a ledger, if that costs more than the fixes save, and what
    is longer in them. The first step is long in most recordings, whose others say what the run pays.
    """
    steps = facts.recorded_steps
    slow, _ = unusual(steps.duration)
    long = np.flatnonzero(slow)
    extra_ns = (steps.duration[long] - facts.step_ns).sum()
    if (
        facts.captured.ledger is not None
        or not long.any()
        or extra_ns < max(LARGE_SHARE, saved_share) * steps.window_ns
    ):
        return ""
    grown = {cause: (ns[long] - median(ns[~slow])).sum() for cause, ns in facts.of_every_step.parts_by_step.items()}
    most = in_sentence(facts.label(max(grown, key=lambda cause: grown[cause])))
    if (function := facts.slow_step_function) is not None:
        most = f"{function.function}() runs only then ({function})"
    take = "takes" if len(long) == 1 else "take"
    share = percent(steps.duration[long].sum() / steps.duration.sum())
    return f"{len(long)} of {steps.count} steps {take} {share} of the recorded time: {most}."


def _regular_steps(facts: Facts, saved_share: float) -> str:
    """Says that one step in several does more, if that costs much, and more than the fixes save."""
    found, ledger = facts.regular_steps, facts.captured.ledger
    if found is None or ledger is None or found.excess_share < max(LARGE_SHARE, saved_share) or len(ledger.long_steps):
        return ""
    where = f" ({_BEFORE['long_steps']}{ledger.long_ends[0].location})" if ledger.long_ends else ""
    return (
        f"Every {found.every} steps, one takes {ms(found.long_ns)} instead of {ms(found.usual_ns)}{where}: "
        f"{percent(found.excess_share)} of the time of all steps."
    )


def _too_few_cores(facts: Facts, saved_share: float) -> str:
    """Says that the main thread waits for a free core: for other programs, or for threads of the job, if that costs
    more than the fixes save.
    """
    captured = facts.captured
    if not lacks_cores(facts) or captured.ledger is None:
        return ""
    share, cores = captured.ledger.core_wait_share or 0.0, captured.environment.cores or 1
    waits = f"The main thread waits for a free core for {percent(share)} of the run"
    if captured.threads <= cores:
        fewer = " Try fewer operator threads (OMP_NUM_THREADS=1) or a free machine before other changes."
        return f"{waits}, because other programs run.{fewer if fewer_threads_first(facts) else ''}"
    if share < saved_share:
        return ""
    return f"{waits}: the job has {counted(captured.threads, 'thread')} on {counted(cores, 'core')}."


def lacks_cores(facts: Facts) -> bool:
    """Whether the main thread waits for a free core for so long that its operators are not slow by themselves. Not if
    there is a GPU, which may hide the wait.
    """
    ledger = facts.captured.ledger
    share = ledger.core_wait_share if ledger is not None else None
    return not facts.has_gpu and facts.captured.environment.cores is not None and (share or 0.0) >= LARGE_SHARE


def fewer_threads_first(facts: Facts) -> bool:
    """Whether other programs hold the cores for which the operators' threads wait. A single thread only takes longer,
    all of it alike.
    """
    threads, environment = facts.captured.threads, facts.captured.environment
    return lacks_cores(facts) and threads <= (environment.cores or 1) and (environment.threads or 1) > 1


def _slower_steps(facts: Facts, saved_share: float) -> str:
    """Says that the steps become slower, if that is not planned, nor the work of other programs, and costs much, and
    more than the fixes save.
    """
    drift, ledger = facts.step_drift, facts.captured.ledger
    if drift is None or drift.change is None or drift.slower_share < max(LARGE_SHARE, saved_share):
        return ""
    if ledger is not None and (ledger.core_wait_share or 0.0) >= CROWDED_SHARE:
        return ""
    change = drift.change
    if main_cause(change) in ("samples", "sample size"):
        return ""
    when = f"at about step {change.step:,}" if change.step is not None else "during the run"
    grows = ", and memory grows with them" if change.memory is not None else ""
    return f"Steps become slower {when}, from {ms(change.before_ns)} to {ms(change.after_ns)}{grows}."


def _beside_the_steps(facts: Facts, run: WholeRun | None, saved_share: float) -> tuple[str, str]:
    """A sentence on the largest part of the run beside its steps, if it takes much: to say before the step's verdict
    or after it.
    """
    ledger = facts.captured.ledger
    if run is None or ledger is None:
        return "", ""
    times = {part.name: part.us for part in run.parts}
    steps_us = times.get("steps", 0.0)
    for part in run.parts:
        known = part.name != "steps" and _says_something(part.name, ledger)
        if not known or (part.name == "startup" and facts.captured.cut_short):
            continue
        of_us = run.us if part.name == "startup" else run.us - times.get("startup", 0.0)
        where = f" ({_BEFORE.get(part.name, '')}{part.locations[0]})" if part.locations else ""
        few = part.name == "long_steps" and len(ledger.long_steps) < MIN_LONG_STEPS
        sentence = (_FEW_LONG_STEPS if few else _SENTENCES[part.name]).format(
            share=percent(part.us / of_us),
            where=where,
            steps=percent(steps_us / of_us),
            long=counted(len(ledger.long_steps), "long step"),
            evaluation=ledger.evaluation_name(bool(facts.captured.loaders)),
        )
        large = part.us >= LARGE_SHARE * of_us and not few
        if part.us > steps_us or (large and part.us > saved_share * steps_us):
            return sentence, ""
        return "", sentence if large else ""
    return "", ""


def _says_something(part: RunPartName, ledger: Ledger) -> bool:
    occurrences = {"evaluation": ledger.eval_ns, "checkpoints": ledger.save_ns}.get(part)
    if part in ("recompiling", "long_steps"):  # the latter count only if waits for cores cannot explain them
        return True
    if occurrences is not None:
        return bool(np.count_nonzero(occurrences) >= MIN_OCCURRENCES)
    return ledger.whole_run.total_ns >= LONG_RUN_NS
