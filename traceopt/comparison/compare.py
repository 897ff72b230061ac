"""Compares the runs of two sides and makes the comparison document."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.comparison.findings import finding_changes, note_changes
from traceopt.comparison.gates import Gate, judge
from traceopt.comparison.likeness import (
    explanation,
    other_graphs,
    other_machines,
    other_types,
    other_work,
    unknown_work,
)
from traceopt.comparison.noise import step_change
from traceopt.comparison.rows import kernel_changes, metric_changes, op_changes, part_changes
from traceopt.comparison.runs import RunOfSide
from traceopt.comparison.unusual_steps import all_steps, typical_steps_us
from traceopt.errors import InputError
from traceopt.result.comparison import ComparedRun, Comparison, PartChange, SettingChange, Side, StepChange
from traceopt.result.document import Result, Tool
from traceopt.result.quantities import ms, percent
from traceopt.result.vendor_words import device_name
from traceopt.rules.catalogue.tq006_profiler_overhead import STACKS_RECORDED
from traceopt.version import __version__

NOT_ALIKE = "The sides are not like for like."
CROWDED = "PY002"  # the main thread waited for a free core


def compare_runs(
    base: Sequence[RunOfSide], head: Sequence[RunOfSide], gates: Sequence[Gate] = (), *, in_turn: bool = False
) -> Comparison:
    """The document with the outcome of every gate. Raises InputError if runs `in_turn` do not make pairs."""
    if in_turn and len(base) != len(head):
        raise InputError(f"--in-turn needs as many runs of BASE as of HEAD, but there are {len(base)} and {len(head)}")
    before, after = ([run.result for run in side] for side in (base, head))
    machines, work = other_machines(before[0], after[0]), other_work(before[0], after[0])
    judged = all(result.quality.verdict != "unusable" for result in (*before, *after))
    unlike = [*machines, *other_types(before[0], after[0]), *work] if judged else []
    step = _step(before, after, in_turn)
    if machines or work:
        step = StepChange("not_measured", step.base_us, step.head_us, reason=step.reason or NOT_ALIKE)
    comparable = step.verdict != "not_measured"
    parts = part_changes(before, after, step)
    kernels = kernel_changes(before, after)
    ops = [] if other_graphs(before[0], after[0]) else op_changes(before, after)
    comparison = Comparison(
        tool=Tool("traceopt", __version__),
        verdict=f"{_unlike(unlike)}{_verdict(step, parts)}",
        base=_side(base),
        head=_side(head),
        step=step,
        all_steps=all_steps(before, after, step),
        breakdown=parts,
        metrics=metric_changes(before, after, step),
        kernels=kernels if comparable else [],
        ops=ops if comparable else [],
        findings=finding_changes(before, after, comparable=comparable),
        unestimated=note_changes(before, after) if comparable else [],
        settings=_settings(before[0], after[0]),
        notes=[*_same_trace(before, after), *_unknown_work(before[0], after[0], step), *_notes(base, head)],
        differences=unlike,
        explanation=explanation(before[0], after[0], ops, kernels) if comparable else [],
        comparable=comparable,
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


def _side(runs: Sequence[RunOfSide]) -> Side:
    results = [run.result for run in runs]
    devices = [result.run.device for result in results if result.run.device is not None]
    return Side(
        [
            ComparedRun(
                run.label,
                run.result.run.paths,
                run.result.step.count if run.result.step.source != "window" else 0,
                run.result.step.typical_us,
                run.result.quality.verdict,
                any(finding.code == CROWDED for finding in run.result.findings),
            )
            for run in runs
        ],
        next((device_name(device.name, device.vendor) for device in devices), None),
        next((result.run.torch_version for result in results if result.run.torch_version), None),
        next((result.run.world_size for result in results if result.run.world_size), None),
    )


def _unlike(found: Sequence[str]) -> str:
    """What comes before the verdict if the sides did not do the same work."""
    return f"Not like for like: different {_listed(found)}. " if found else ""


def _listed(items: Sequence[str]) -> str:
    """ "stacks, shapes and memory"; there is one or more."""
    return " and ".join(part for part in (", ".join(items[:-1]), items[-1]) if part)


def _verdict(step: StepChange, parts: Sequence[PartChange]) -> str:
    """How the step changed, and the part that accounts for most of the change."""
    if step.base_us is None or step.head_us is None:
        return f"Step times cannot be compared. {step.reason}"
    if step.change_share is None:
        return f"A step takes {ms(step.base_us * 1e3)} in BASE and {ms(step.head_us * 1e3)} in HEAD."
    times = f"{ms(step.base_us * 1e3)} → {ms(step.head_us * 1e3)}"
    if step.verdict == "within_noise":
        return f"Within noise: {times} per step."
    if step.verdict == "unclear":
        return f"It is unclear whether the step changed: {times} per step."
    ratio = 1 + step.change_share
    direction = "more" if step.change_share > 0 else "less"
    change = f"{percent(abs(step.change_share))} {direction} time" if ratio < 2 else f"{ratio:.1f} times as long"
    sentence = f"The step takes {change}: {times}."
    sign = 1 if step.change_share > 0 else -1
    most = max(parts, key=lambda part: sign * (part.change_us or 0.0), default=None)
    changed_us = sign * (most.change_us or 0.0) if most is not None else 0.0
    if most is None or changed_us < abs(step.head_us - step.base_us) / 3:
        return sentence
    verb = "grew" if sign > 0 else "shrank"
    label = f"{most.label[0].lower()}{most.label[1:]}" if most.label[1:2].islower() else most.label
    share = changed_us / abs(step.head_us - step.base_us)
    what = (
        f"{label[0].upper()}{label[1:]} alone"
        if share > 1.01
        else f"{'Most' if share > 0.5 else 'The largest part'} of it: {label}"
    )
    return f"{sentence} {what} {verb} by {ms(changed_us * 1e3)}."


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
    return ["BASE and HEAD hold the same trace."] if any(one in traces[1] for one in traces[0] if one[0]) else []


def _unknown_work(base: Result, head: Result, step: StepChange) -> list[str]:
    """Only a step that changed raises the question."""
    unknown = unknown_work(base, head) if step.verdict in ("slower", "faster") else None
    return [unknown] if unknown else []


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
    notes = [note.text for note in result.quality.notes if stacks or not note.text.startswith(STACKS_RECORDED)]
    return [
        *(["the main thread often waited for a free core. Record it again."] if crowded else []),
        *dict.fromkeys(map(_first_sentence, notes)),
    ]


def _stacks_slow_all(results: Sequence[Result]) -> bool:
    """Whether stacks slow the runs of both sides: the note on them depends on how long the GPU waits for the host."""
    alike = all(result.run.recorded.stacks and result.step.stretch is None for result in results)
    return alike and any(note.text.startswith(STACKS_RECORDED) for result in results for note in result.quality.notes)


def _first_sentence(text: str) -> str:
    first, end, _ = text.partition(". ")
    return first + end.rstrip()


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
