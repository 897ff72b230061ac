"""Compares the runs of two sides and makes the comparison document."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from msgspec import Struct

from traceopt.comparison.counts import HOST_SYNCS, count_changes
from traceopt.comparison.findings import finding_changes
from traceopt.comparison.gates import Gate, judge
from traceopt.comparison.noise import step_change
from traceopt.comparison.rows import kernel_changes, metric_changes, op_changes, part_changes
from traceopt.comparison.runs import RunOfSide
from traceopt.comparison.same_conditions import (
    explanation,
    other_graphs,
    other_machines,
    other_types,
    unknown_ranks,
    unknown_work,
)
from traceopt.comparison.unusual_steps import all_steps, typical_steps_us
from traceopt.comparison.work import Work, work_change, work_of
from traceopt.errors import InputError
from traceopt.result.comparison import (
    AllSteps,
    ComparedRun,
    Comparison,
    CountChange,
    PartChange,
    SettingChange,
    Side,
    StepChange,
    WorkChange,
)
from traceopt.result.document import Result
from traceopt.result.sections.run import Tool
from traceopt.result.words.quantities import count, in_sentence, ms, percent
from traceopt.result.words.vendors import device_name
from traceopt.rules.catalogue.tq006_profiler_overhead import STACKS
from traceopt.version import __version__

NOT_ALIKE = "The sides are not like for like."
TIMED = "Steps were timed without the profiler, in turn. Parts, kernels and counts are from one recording of each side."
CROWDED = "PY002"  # the main thread waited for a free core


class Timed(Struct, frozen=True):
    """The change of the step that runs of the same command without a profiler showed, and the steps of each run."""

    change: StepChange
    base_us: list[list[float]]
    head_us: list[list[float]]


def compare_runs(
    base: Sequence[RunOfSide],
    head: Sequence[RunOfSide],
    gates: Sequence[Gate] = (),
    *,
    in_turn: bool = False,
    timed: Timed | None = None,
) -> Comparison:
    """The document with the outcome of every gate. With `timed`, the runs are one recording of each side.

    Raises InputError if runs `in_turn` do not make pairs.
    """
    if in_turn and len(base) != len(head):
        raise InputError(f"--in-turn needs as many runs of BASE as of HEAD, but there are {len(base)} and {len(head)}")
    before, after = ([run.result for run in side] for side in (base, head))
    machines, work = other_machines(before[0], after[0]), work_of(before[0], after[0])
    other_work = [one.told for one in work if one.told]
    judged = all(result.quality.verdict != "unusable" for result in (*before, *after))
    unlike = [*machines, *other_types(before[0], after[0]), *other_work] if judged else []
    step = _step(before, after, in_turn) if timed is None else timed.change
    if machines or (other_work and timed is None):
        step = StepChange("not_measured", step.base_us, step.head_us, reason=step.reason or NOT_ALIKE)
    comparable = step.verdict != "not_measured"
    per_work = None if machines else work_change(work, step)
    parts = part_changes(before, after, step)
    every = all_steps(before, after, step) if timed is None else None
    kernels = kernel_changes(before, after)
    ops = [] if other_graphs(before[0], after[0]) else op_changes(before, after)
    findings, notes = finding_changes(before, after, comparable=comparable)
    counts = count_changes(before[0], after[0]) if comparable else []
    comparison = Comparison(
        tool=Tool("traceopt", __version__),
        verdict=f"{_unlike(unlike)}{_verdict(step, parts, every)}{_certain(step, parts, counts)}{_per_work(per_work)}",
        base=_side(base, None if timed is None else timed.base_us),
        head=_side(head, None if timed is None else timed.head_us),
        step=step,
        all_steps=every,
        breakdown=parts,
        metrics=metric_changes(before, after, step),
        kernels=kernels if comparable else [],
        ops=ops if comparable else [],
        findings=findings,
        unestimated=notes,
        settings=_settings(before[0], after[0]),
        notes=[
            *([TIMED] if timed is not None else []),
            *_same_trace(before, after),
            *_unknown(before[0], after[0], step, work),
            *_notes(base, head),
        ],
        differences=unlike,
        explanation=explanation(before[0], after[0], ops, kernels) if comparable else [],
        comparable=comparable,
        work=per_work,
        counts=counts,
    )
    comparison.gates.extend(judge(gate, after, comparison) for gate in gates)
    return comparison


def _step(base: Sequence[Result], head: Sequence[Result], in_turn: bool) -> StepChange:
    for name, side in (("BASE", base), ("HEAD", head)):
        for result in side:
            if result.quality.verdict == "unusable":
                return StepChange("not_measured", reason=f"A trace of {name} cannot be judged.")
    sampled = [name for name, side in (("BASE", base), ("HEAD", head)) if any(map(_is_sample, side))]
    if sampled:
        return StepChange(
            "not_measured", reason=f"A trace of {' and of '.join(sampled)} has only a sample of the events."
        )
    unmarked = [name for name, side in (("BASE", base), ("HEAD", head)) if any(map(_no_marks, side))]
    if unmarked:
        return StepChange("not_measured", reason=f"A trace of {' and of '.join(unmarked)} has no usable step marks.")
    before, after = ([typical_steps_us(result) for result in side] for side in (base, head))
    return step_change(before, after, in_turn=in_turn)


def _no_marks(result: Result) -> bool:
    return result.step.source == "window"


def _is_sample(result: Result) -> bool:
    return result.quality.sampled_share is not None


def _side(runs: Sequence[RunOfSide], timed: Sequence[list[float]] | None) -> Side:
    """`timed`: the steps of timed runs, which take the place of the recording's."""
    results = [run.result for run in runs]
    devices = [result.run.device for result in results if result.run.device is not None]
    return Side(
        [*map(_recorded_run, runs)] if timed is None else [_timed_run(runs[0], steps_us) for steps_us in timed],
        next((device_name(device.name, device.vendor) for device in devices), None),
        next((result.run.torch_version for result in results if result.run.torch_version), None),
        next((result.run.world_size for result in results if result.run.world_size), None),
    )


def _recorded_run(run: RunOfSide) -> ComparedRun:
    result = run.result
    return ComparedRun(
        run.label,
        result.run.paths,
        0 if _no_marks(result) else result.step.count,
        result.step.typical_us,
        result.quality.verdict,
        any(finding.code == CROWDED for finding in result.findings),
        [] if _no_marks(result) else result.step.per_step_us,
    )


def _timed_run(recording: RunOfSide, steps_us: list[float]) -> ComparedRun:
    quality = recording.result.quality.verdict
    return ComparedRun(recording.label, [], len(steps_us), fmean(steps_us), quality, False, steps_us)


def _unlike(found: Sequence[str]) -> str:
    """What comes before the verdict if the sides did not do the same work."""
    return f"Not like for like: different {_listed(found)}. " if found else ""


def _listed(items: Sequence[str]) -> str:
    """ "stacks, shapes and memory"; there is one or more."""
    return " and ".join(part for part in (", ".join(items[:-1]), items[-1]) if part)


def _per_work(work: WorkChange | None) -> str:
    """ " Per sample, HEAD takes 12% less time."."""
    if work is None:
        return ""
    unit = "unit of work" if work.unit == "unit" else work.unit
    about = "about " if work.unit == "unit" else ""
    return f" Per {unit}, HEAD takes {about}{_changed(work.time_change_share)}."


def _verdict(step: StepChange, parts: Sequence[PartChange], every: AllSteps | None) -> str:
    """How the step changed, and the part that accounts for most of the change."""
    if step.base_us is None or step.head_us is None:
        return f"Step times cannot be compared. {step.reason}"
    if step.change_share is None:
        return f"A step takes {ms(step.base_us * 1e3)} in BASE and {ms(step.head_us * 1e3)} in HEAD."
    times = _times(step.base_us, step.head_us)
    if every is not None and every.decisive:
        sentence = f"{_typical(step)}{_of_all(step, every)}."
    elif step.verdict == "within_noise":
        sentence = f"Within noise: {times} per step."
    elif step.verdict == "unclear":
        sentence = f"It is unclear whether the step changed: {times} per step."
    else:
        sentence = f"The step takes {_changed(step.change_share)}: {times}."
    return f"{sentence}{_largest_part(step, parts)}"


def _typical(step: StepChange) -> str:
    """The start of a sentence on the typical step, which goes on with the mean of all steps."""
    times = _times(step.base_us or 0.0, step.head_us or 0.0)
    if step.verdict == "within_noise":
        return f"The typical step is within noise ({times})"
    if step.verdict == "unclear":
        return f"It is unclear whether the typical step changed ({times})"
    return f"The typical step takes {_changed(step.change_share or 0.0)} ({times})"


def _of_all(step: StepChange, every: AllSteps) -> str:
    change = _changed(every.change_share)
    if step.verdict in ("slower", "faster") and (step.change_share or 0.0) * every.change_share > 0:
        return f", the mean of all steps {change.removesuffix(' time')}"
    return f", but the mean of all steps takes {change}"


def _changed(share: float) -> str:
    """ "30% less time", "7.5 times as long"."""
    ratio = 1 + share
    return (
        f"{percent(abs(share))} {'more' if share > 0 else 'less'} time" if ratio < 2 else f"{ratio:.1f} times as long"
    )


def _times(base_us: float, head_us: float) -> str:
    return f"{ms(base_us * 1e3)} → {ms(head_us * 1e3)}"


def _largest_part(step: StepChange, parts: Sequence[PartChange]) -> str:
    """ " Waiting for data alone shrank by 58.4 ms."; empty if the step did not change, or no part holds a third."""
    if step.verdict not in ("slower", "faster"):
        return ""
    whole_us = (step.head_us or 0.0) - (step.base_us or 0.0)
    sign = 1 if whole_us > 0 else -1
    most = max(parts, key=lambda part: sign * (part.change_us or 0.0), default=None)
    changed_us = sign * (most.change_us or 0.0) if most is not None else 0.0
    if most is None or changed_us < abs(whole_us) / 3:
        return ""
    verb = "grew" if sign > 0 else "shrank"
    label = in_sentence(most.label)
    share = changed_us / abs(whole_us)
    what = (
        f"{label[0].upper()}{label[1:]} alone"
        if share > 1.01
        else f"{'Most' if share > 0.5 else 'The largest part'} of it: {label}"
    )
    return f" {what} {verb} by {ms(changed_us * 1e3)}."


def _certain(step: StepChange, parts: Sequence[PartChange], counts: Sequence[CountChange]) -> str:
    """ " But host sync shrank by 2.0 ms, beyond noise, and host syncs are gone (53 → 0)."; only of an unclear step."""
    if step.verdict != "unclear":
        return ""
    found = []
    whole_us = (step.head_us or 0.0) - (step.base_us or 0.0)
    part = next((one for one in parts if one.beyond_noise), None)
    if part is not None and part.change_us is not None and abs(part.change_us) >= abs(whole_us) / 3:
        verb = "grew" if part.change_us > 0 else "shrank"
        found.append(f"{in_sentence(part.label)} {verb} by {ms(abs(part.change_us) * 1e3)}, beyond noise")
    waits = next((one for one in counts if one.name == HOST_SYNCS and not (one.base and one.head)), None)
    if waits is not None:
        change = f"{count(waits.base)} → {count(waits.head)} per step"
        found.append(f"host syncs are {'gone' if waits.base else 'new'} ({change})")
    return f" But {', and '.join(found)}." if found else ""


def _settings(base: Result, head: Result) -> list[SettingChange]:
    """Settings that differ between the first runs; empty if a side recorded none."""
    before, after = ({setting.name: setting.value for setting in result.run.settings} for result in (base, head))
    if not before or not after:
        return []
    names = dict.fromkeys((*before, *after))
    return [SettingChange(n, before.get(n), after.get(n)) for n in names if before.get(n) != after.get(n)]


def _same_trace(base: Sequence[Result], head: Sequence[Result]) -> list[str]:
    """By their content: a baseline of another commit may have been read from the same path."""
    traces = [[(run.step.per_step_us, run.breakdown, run.run.files) for run in side] for side in (base, head)]
    return ["BASE and HEAD hold the same trace."] if any(trace in traces[1] for trace in traces[0] if trace[0]) else []


def _unknown(base: Result, head: Result, step: StepChange, work: Sequence[Work]) -> list[str]:
    """What is not known of the jobs. Only a step that changed raises the question."""
    if step.verdict not in ("slower", "faster"):
        return []
    return [*([] if work else [unknown_work(base, head)]), *unknown_ranks(base, head)]


def _notes(base: Sequence[RunOfSide], head: Sequence[RunOfSide]) -> list[str]:
    """Reasons why the sides are hard to compare."""
    notes = []
    first, second = base[0].result, head[0].result
    for what, before, after in (
        ("PyTorch versions", first.run.torch_version, second.run.torch_version),
        ("GPU runtimes", first.run.gpu_runtime, second.run.gpu_runtime),
        ("shown ranks", _text(first.run.shown_rank), _text(second.run.shown_rank)),
    ):
        if before is not None and after is not None and before != after:
            notes.append(f"The {what} differ: {before} and {after}.")
    recorded = [run.result.run.recorded for run in (*base, *head)]
    some = [what for what in ("stacks", "shapes", "memory") if len({getattr(one, what) for one in recorded}) > 1]
    if some:
        notes.append(f"Only some runs were recorded with {_listed(some)}, which slows their steps down.")
    runs = [(f"{side} {run.label}", run.result) for side, runs in (("BASE", base), ("HEAD", head)) for run in runs]
    everywhere = _stacks_slow_all([result for _, result in runs])
    of_runs: dict[str, list[str]] = {}
    for name, result in runs:
        for text in _notes_of_run(result, stacks=not everywhere):
            of_runs.setdefault(text, []).append(name)
    notes += ["Python stacks were recorded on both sides, which slows the host."] if everywhere else []
    for text, names in of_runs.items():
        notes += [f"Both sides: {text}"] if len(names) == len(runs) else [f"{name}: {text}" for name in names]
    return list(dict.fromkeys(notes))


def _notes_of_run(result: Result, *, stacks: bool) -> list[str]:
    """What makes one run hard to compare; with `stacks`, also that they slow it."""
    crowded = any(finding.code == CROWDED for finding in result.findings)
    notes = [note.text for note in result.quality.notes if stacks or note.aspect != STACKS]
    return [
        *(["the main thread often waited for a free core. Record it again."] if crowded else []),
        *dict.fromkeys(map(_first_sentence, notes)),
    ]


def _stacks_slow_all(results: Sequence[Result]) -> bool:
    """Whether stacks slow the runs of both sides: the note on them depends on how long the GPU waits for the host."""
    alike = all(result.run.recorded.stacks and result.step.stretch is None for result in results)
    return alike and any(note.aspect == STACKS for result in results for note in result.quality.notes)


def _first_sentence(text: str) -> str:
    first, end, _ = text.partition(". ")
    return first + end.rstrip()


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
