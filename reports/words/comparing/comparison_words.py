"""Names and sentences that all formats of a comparison share."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from traceopt.analyzer.vocabulary.causes.table import COMPUTE, MODEL_WORK
from traceopt.comparison import metrics
from traceopt.comparison.noise import ASSUMED_SPREAD
from traceopt.reports.words import safe_text
from traceopt.reports.words.fixes.fix_cards import IMPACT_WORDS
from traceopt.reports.words.step_words import CPU_PATTERNED, GPU_PATTERNED
from traceopt.result.comparison import (
    Comparison,
    CountChange,
    FindingChange,
    GateOutcome,
    MetricChange,
    PartChange,
    RowChange,
    RowStatus,
    Side,
    StepChange,
)
from traceopt.result.words import quantities

SMALL_SHARE = 0.002  # of the step: smaller parts (on both sides) are not shown
Group = Literal["new", "only_head", "only_base", "fixed", "small", "kept"]  # of findings
GROUP_WORDS: dict[Group, str] = {
    "new": "New",
    "only_head": "Only in HEAD",
    "only_base": "Only in BASE",
    "fixed": "No longer seen",
    "small": "Maybe not new",
    "kept": "In both",
}
SHORT_GROUP_WORDS: dict[Group, str] = {
    "new": "new",
    "only_head": "only in HEAD",
    "only_base": "only in BASE",
    "fixed": "gone",
    "small": "new?",
    "kept": "both",
}
ROW_WORDS: dict[RowStatus, str] = {
    "appeared": "new",
    "vanished": "gone",
    "slower": "slower",
    "faster": "faster",
    "more_calls": "more",
    "fewer_calls": "fewer",
    "outlier": "outlier",
}


def side_name(side: Side) -> str:
    """The name of the run or of all runs, or of the first of several, and how many more there are."""
    first = side.runs[0].label if side.runs else "no run"
    return (
        first
        if len({run.label for run in side.runs}) < 2
        else f"{first} and {quantities.counted(len(side.runs) - 1, 'more run')}"
    )


def steps_phrase(side: Side) -> str:
    """ "6 steps", "5 runs of 20 steps", "3 runs, 58 steps", "no usable step marks"."""
    counts = [run.steps for run in side.runs]
    if not any(counts):
        return "no usable step marks"
    if len(counts) == 1:
        return quantities.counted(counts[0], "step")
    if len(set(counts)) == 1:
        return f"{len(counts)} runs of {quantities.counted(counts[0], 'step')}"
    return f"{len(counts)} runs, {quantities.counted(sum(counts), 'step')}"


def change_line(comparison: Comparison) -> str | None:
    """ "Typical step: +5.2% (99% interval +3.1% to +7.3%)", without the first words if it is the mean of all steps.

    None without a change.
    """
    share = interval(comparison.step)
    return f"Typical step: {share}" if share is not None and comparison.all_steps is not None else share


def interval(step: StepChange) -> str | None:
    """ "+5.2% (99% interval +3.1% to +7.3%)"; None without a change."""
    if step.change_share is None:
        return None
    share = quantities.signed_percent(step.change_share)
    if step.low_share is None or step.high_share is None:
        return share
    low, high = quantities.signed_percent(step.low_share), quantities.signed_percent(step.high_share)
    return f"{share} (99% interval {low} to {high})"


def basis(comparison: Comparison) -> str:
    """What the interval is based on, and the smallest change it can detect. Empty if the verdict says why there is no
    change.
    """
    step = comparison.step
    if step.verdict == "not_measured":
        return ""
    if step.change_share is None or step.reason is not None:
        return step.reason or ""
    unseen = "They vary too much for an interval of the change."
    if step.unseen_share is not None:
        share = step.unseen_share if step.change_share >= 0 else 1 - 1 / (1 + step.unseen_share)
        unseen = f"A change below {quantities.percent(share)} could not be detected."
    if step.run_to_run_share is not None:
        runs = f"{len(comparison.base.runs)} base and {len(comparison.head.runs)} head runs"
        if step.in_turn:
            runs = f"{len(comparison.base.runs)} pairs of runs"
        spread = quantities.percent(step.run_to_run_share)
        return f"{runs}, run-to-run noise {spread} (standard deviation). {unseen}"
    assumed = quantities.percent(ASSUMED_SPREAD)
    return f"One run per side, plus {assumed} assumed run-to-run noise. {unseen}"


def unusual_steps(comparison: Comparison) -> str:
    """ "2 of 6 steps of HEAD are unusual and left out. Mean of all steps: 177.6 → 141.1 ms (−21%)."; "" if none are.

    Without the change in per cent if the verdict has it.
    """
    found = comparison.all_steps
    if found is None:
        return ""
    counts = [
        f"{unusual:,} of {quantities.counted(steps, 'step')} of {side}"
        for side, unusual, steps in (
            ("BASE", found.base_unusual, found.base_steps),
            ("HEAD", found.head_unusual, found.head_steps),
        )
        if unusual
    ]
    verb = "is" if found.base_unusual + found.head_unusual == 1 else "are"
    left_out = f"{' and '.join(counts)} {verb} unusual and left out of the typical step."
    times = f"{quantities.ms_of_us(found.base_us)} → {quantities.ms_of_us(found.head_us)}"
    change = "" if found.decisive else f" ({quantities.signed_percent(found.change_share)})"
    return f"{left_out} Mean of all steps: {times}{change}."


def shown_parts(comparison: Comparison) -> list[PartChange]:
    """The parts large enough to see."""
    whole_us = max((sum(getattr(p, side) for p in comparison.breakdown) for side in ("base_us", "head_us")), default=0)
    least = SMALL_SHARE * whole_us
    return [part for part in comparison.breakdown if max(part.base_us, part.head_us) >= least]


def apart_from_noise(parts: Sequence[PartChange]) -> tuple[list[PartChange], str]:
    """The parts that changed, and a sentence on those within noise. All parts and no sentence if none changed."""
    noise = [part for part in parts if part.beyond_noise is False]
    if len(noise) in (0, len(parts)):
        return list(parts), ""
    names = ", ".join(part.label for part in noise)
    return [part for part in parts if part not in noise], f"Within noise: {names}."


def part_change(part: PartChange) -> str:
    """ "−15 ms", "0 ms"; a dash if the sides cannot be compared."""
    return "–" if part.change_us is None else quantities.signed_time(part.change_us)


def metric_value(metric: MetricChange, value: float | None) -> str:
    if value is None:
        return quantities.NOT_RECORDED
    return safe_text.unbroken(metrics.value_text(metric.unit, value))


def metric_change(metric: MetricChange) -> str:
    """In per cent of the base, for shares in points; a dash if a side is missing."""
    if metric.base is None or metric.head is None:
        return "–"
    if metric.unit == "share":
        points = round((metric.head - metric.base) * 100, 1)
        return f"{points:+.1f} points".replace("-", "−") if points else "0 points"
    return quantities.signed_percent(metric.head / metric.base - 1) if metric.base else "–"


def patterned(comparison: Comparison) -> str:
    """What the patterned parts of the bars mean."""
    busy = {part.name for part in comparison.breakdown if part.busy}
    if COMPUTE.key not in busy:
        return CPU_PATTERNED
    return "Patterned parts: no model work." if busy & {part.key for part in MODEL_WORK} else GPU_PATTERNED


def no_operators(comparison: Comparison) -> str:
    """Why the table of operators is empty."""
    graphs = any("operators are not compared" in text for text in comparison.explanation)
    return "Operators in CUDA graphs are not compared." if graphs else "No operator changed noticeably."


def part_of_sides(comparison: Comparison, part: PartChange) -> list[str]:
    """ "58.7 ms (33%)" of each side, for sides that cannot be compared."""
    cells = []
    for side in ("base_us", "head_us"):
        whole_us = sum(getattr(one, side) for one in comparison.breakdown)
        us = getattr(part, side)
        cells.append(f"{quantities.ms_of_us(us)} ({quantities.percent(us / whole_us if whole_us else 0.0)})")
    return cells


def got_worse(comparison: Comparison) -> str:
    """ "Worse: exposed copies +1.0 ms, peak memory 3.2 GiB → 3.4 GiB.": parts beyond noise, and more memory."""
    if not comparison.comparable:
        return ""
    parts = [part for part in shown_parts(comparison) if part.beyond_noise and (part.change_us or 0.0) > 0]
    found = [f"{quantities.in_sentence(part.label)} {part_change(part)}" for part in parts]
    for metric in comparison.metrics:
        sides = [metric_value(metric, value) for value in (metric.base, metric.head)]
        more = metric.name == "peak_memory" and (metric.head or 0.0) > (metric.base or metric.head or 0.0)
        if more and metric.beyond_noise is not False and sides[0] != sides[1]:
            found.append(f"{quantities.in_sentence(metric.label)} {' → '.join(sides)}")
    nothing = "No part of the step got worse beyond noise." if any(p.beyond_noise for p in comparison.breakdown) else ""
    return f"Worse: {', '.join(found)}." if found else nothing


def metrics_line(comparison: Comparison) -> str:
    """ "GPU idle 44% → 28%, MFU 28% → 40%": the other metrics that both sides measured, without parts of the step."""
    left_out = {metrics.METRICS[metrics.STEP_TIME].label, *(part.label for part in comparison.breakdown)}
    known = [m for m in comparison.metrics if m.label not in left_out and m.base is not None and m.head is not None]
    between = " → " if comparison.comparable else " and "
    pairs = [(m, metric_value(m, m.base), metric_value(m, m.head)) for m in known if m.base or m.head]
    return ", ".join(f"{m.label} {base}{between}{head}" for m, base, head in pairs if base != head)


def count_of(change: CountChange, value: float) -> str:
    """ "1,024", "2.1 GiB", "3.2 GFLOP"."""
    if change.unit == "bytes":
        return quantities.size(value)
    return quantities.count(value) if change.unit == "calls" else f"{quantities.rate_number(value / 1e9)} GFLOP"


def count_change(change: CountChange) -> str:
    """ "+5.2%", "+1"; "new" and "gone" of a name."""
    if not change.head:
        return "gone"
    return quantities.signed_percent(change.head / change.base - 1) if change.base else "new"


def shown_step_us(side: Side) -> float | None:
    """The typical step of a side that is shown but not compared, as a mean over its runs; None if a run has none."""
    known = [run.typical_us for run in side.runs if run.typical_us is not None]
    return fmean(known) if known and len(known) == len(side.runs) else None


def group_of(finding: FindingChange) -> Group:
    """Its status; if the other side is unknown, the side that has it."""
    if finding.share_of_base is not None:
        return "small"
    if finding.status != "unknown":
        return finding.status
    return "only_head" if finding.base_impact is None else "only_base"


def other_place(finding: FindingChange) -> str:
    """What else to know of the other side: "BASE has it at common.py:23.", "HEAD did not check it."; "" if nothing."""
    if finding.share_of_base is not None:
        return f"Only {quantities.percent(finding.share_of_base)} of the step of BASE."
    return finding.reason or ""


def measured_noun(comparison: Comparison) -> str:
    """What the times are of: "step", or "recording" if no side has step marks."""
    return "step" if any(run.steps for side in (comparison.base, comparison.head) for run in side.runs) else "recording"


def saves_heading(comparison: Comparison) -> str:
    return "Saves per step" if measured_noun(comparison) == "step" else "Saves"


def of_group(comparison: Comparison, group: Group) -> list[FindingChange]:
    """Its findings, those without an estimate last."""
    return [finding for finding in (*comparison.findings, *comparison.unestimated) if group_of(finding) == group]


def findings_line(comparison: Comparison, *, without: Group | None = None) -> str:
    """ "1 new, 3 no longer seen, 6 in both"."""
    counts = [(len(of_group(comparison, group)), words) for group, words in GROUP_WORDS.items() if group != without]
    return ", ".join(f"{number} {words[0].lower()}{words[1:]}" for number, words in counts if number) or "none"


def impact(finding: FindingChange) -> str:
    """ "High impact", of HEAD if HEAD has the finding; "" if it is not known."""
    known = finding.head_impact or finding.base_impact or "info"
    return "" if known == "info" else IMPACT_WORDS[known]


def saving(finding: FindingChange) -> str:
    """What the fix saves, before and after if both sides have the finding: "≈ 1.8 ms alone, ≈ 48 ms in the plan".

    One number if both are the same.
    """
    saved = _savings(finding) or "not estimated"
    return f"BASE estimated {saved}" if finding.status == "fixed" and saved != "not estimated" else saved


def _savings(finding: FindingChange) -> str:
    alone = _saved(finding.base_saving_us, finding.head_saving_us)
    planned = _saved(finding.base_plan_us, finding.head_plan_us)
    if not planned or planned == alone:
        return f"{alone} alone" if alone and not planned else alone
    both = finding.base_impact is not None and finding.head_impact is not None
    side = " of BASE" if finding.head_plan_us is None else " of HEAD" if finding.base_plan_us is None else ""
    where = f"in the plan{side}" if both else "in the plan"
    return f"{alone} alone, {planned} {where}" if alone else f"{planned} {where}"


def _saved(before: float | None, after: float | None) -> str:
    if before is not None and after is not None:
        return quantities.from_to(quantities.estimated(before), quantities.estimated(after))
    known = after if after is not None else before
    return quantities.estimate(known) if known is not None and quantities.estimate_number(known) != "0" else ""


def calls(row: RowChange) -> str:
    """ "12 → 48", or nothing if both sides have as many."""
    if row.base_calls is None or row.head_calls is None:
        return ""
    before, after = quantities.count(row.base_calls), quantities.count(row.head_calls)
    return "" if before == after else f"{before} → {after}"


def environment(comparison: Comparison) -> list[str]:
    """The device and version that both sides share. Differences are notes."""
    base, head = comparison.base, comparison.head
    same_device = base.device if base.device == head.device else None
    version = base.torch_version if base.torch_version == head.torch_version else None
    return [item for item in (same_device, f"PyTorch {version}" if version else None) if item]


def gate_line(outcome: GateOutcome) -> str:
    """ "gpu_idle is 61%, the limit is 40% (--fail-on gpu_idle=0.4)"."""
    return f"{outcome.text} (--{outcome.level}-on {outcome.gate})"
