"""Changes inside the step: parts, metrics, kernels and operators, as means over the runs of each side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from statistics import fmean
from typing import TypeVar

from msgspec.structs import replace

from traceopt.comparison.metrics import METRICS, STEP_TIME, mean_of, peak_remarks
from traceopt.comparison.noise import differ, steps_differ, times_differ
from traceopt.comparison.work import SAME_CALLS
from traceopt.document.tables.tables import MAX_ROWS
from traceopt.result.comparison import MetricChange, PartChange, RowChange, RowStatus, StepChange, StepVerdict
from traceopt.result.document import Result
from traceopt.result.sections.work_rows import BreakdownPart, Kernel, Op

NOTABLE_SHARE = 0.005  # of the step: smaller changes of a kernel or operator are left out
NEW_SHARE = 0.001  # of the step: so are smaller ones that appear or vanish
OF_MEDIAN = 0.5  # of a change: if the median step has less of it, a few steps make most of it
HIDDEN_SHARE = 0.1  # of a row's time: the most that a full table may hide of a row called new or gone

_BEYOND_NOISE: dict[StepVerdict, bool] = {"slower": True, "faster": True, "within_noise": False}

_OF_THE_SAME_CALLS: tuple[RowStatus, ...] = ("slower", "faster", "outlier")

Row = TypeVar("Row", Kernel, Op)


def part_changes(base: Sequence[Result], head: Sequence[Result], step: StepChange) -> list[PartChange]:
    """The parts of both sides, largest change first. Empty if a side has no breakdown.

    They add up to the steps of `step`, which are geometric means over the runs. If the steps were not compared, the
    parts have no change.
    """
    sides = [[result.breakdown for result in side if result.breakdown] for side in (base, head)]
    if not all(sides):
        return []
    scales = [
        1.0 if us is None else us / fmean(sum(part.us_per_step for part in parts) for parts in side)
        for side, us in zip(sides, (step.base_us, step.head_us), strict=True)
    ]
    known: dict[str, BreakdownPart] = {part.name: part for side in sides for parts in side for part in parts}
    comparable = step.verdict != "not_measured"
    changes = []
    for name, part in known.items():
        before, after = (
            [scale * _time_of(name, parts) for parts in side] for scale, side in zip(scales, sides, strict=True)
        )
        change = fmean(after) - fmean(before)
        changes.append(
            PartChange(
                name,
                part.label,
                part.busy,
                _us(fmean(before)),
                _us(fmean(after)),
                _us(change) if comparable else None,
                _part_differs(name, base, head, before, after) if comparable else None,
            )
        )
    return sorted(changes, key=lambda part: (-abs(part.change_us or 0.0), -max(part.base_us, part.head_us), part.name))


def _part_differs(
    name: str, base: Sequence[Result], head: Sequence[Result], before: Sequence[float], after: Sequence[float]
) -> bool | None:
    """Beyond the noise from run to run, or with one run per side beyond that of the steps."""
    if len(before) + len(after) > 2:
        return differ(before, after)
    return steps_differ(*(_typical_steps_us(name, side[0]) for side in (base, head)))


def _typical_steps_us(name: str, result: Result) -> list[float]:
    """The time of a part in each typical step; empty if the document does not have the steps in parts."""
    series = result.step.series
    if series is None:
        return []
    rows = [index - series.first for index in result.step.typical_steps]
    times = next((part.us for part in series.parts if part.name == name), [0.0] * len(series.names))
    return [times[row] for row in rows if 0 <= row < len(times)]


def metric_changes(base: Sequence[Result], head: Sequence[Result], step: StepChange) -> list[MetricChange]:
    """Every metric that a side measured. The step time and its noise come from `step`."""
    changes = []
    for metric in METRICS.values():
        before, befores = mean_of(metric, base)
        after, afters = mean_of(metric, head)
        beyond = differ(befores, afters) if before is not None and after is not None else None
        if metric.name == STEP_TIME:
            before, after = step.base_us, step.head_us
            beyond = _BEYOND_NOISE.get(step.verdict)
        if step.verdict == "not_measured":
            beyond = None
        if before is not None or after is not None:
            label = metric.label + peak_remarks(metric, [*base, *head])
            changes.append(MetricChange(metric.name, label, metric.unit, before, after, beyond))
    return changes


def kernel_changes(base: Sequence[Result], head: Sequence[Result]) -> list[RowChange]:
    """Kernels that appeared, vanished, or take noticeably more or less time; largest change first."""
    return _row_changes(
        base,
        head,
        lambda result: result.kernels,
        lambda kernel: kernel.us_per_step,
        lambda kernel: kernel.calls_per_step,
    )


def op_changes(base: Sequence[Result], head: Sequence[Result]) -> list[RowChange]:
    """The same for operators, by the GPU time they launched, or in CPU-only runs by their CPU self time."""
    on_gpu = all(result.gpu.busy_share is not None for result in (*base, *head))

    def time_of(op: Op) -> float:
        return (op.gpu_us_per_step or 0.0) if on_gpu else op.cpu_self_us_per_step

    def calls_of(op: Op) -> float | None:
        return op.launches_per_step if on_gpu else op.calls_per_step

    changes = _row_changes(base, head, lambda result: result.ops, time_of, calls_of)
    return [replace(row, counted="launches") for row in changes] if on_gpu else changes


def _row_changes(
    base: Sequence[Result],
    head: Sequence[Result],
    rows_of: Callable[[Result], list[Row]],
    time_of: Callable[[Row], float],
    calls_of: Callable[[Row], float | None],
) -> list[RowChange]:
    step_us = max(fmean(_step_us(result) for result in side) for side in (base, head))
    before: list[dict[str, Row]] = [{row.name: row for row in rows_of(result)} for result in base]
    after: list[dict[str, Row]] = [{row.name: row for row in rows_of(result)} for result in head]
    if not any(before) or not any(after) or step_us <= 0:
        return []
    changes = []
    for name in dict.fromkeys(name for table in (*before, *after) for name in table):
        befores, afters = ([time_of(t[name]) if name in t else 0.0 for t in side] for side in (before, after))
        status = _status(name, before, after, befores, afters, time_of, calls_of)
        change = fmean(afters) - fmean(befores)
        least = NEW_SHARE if status in ("appeared", "vanished") else NOTABLE_SHARE
        if status not in (None, "appeared", "vanished") and _by_outliers(name, before, after, change):
            status = "outlier"
        if status is None or abs(change) < least * step_us or not _beyond_noise(status, befores, afters):
            continue
        changes.append(
            RowChange(
                name,
                status,
                None if status == "appeared" else _us(fmean(befores)),
                None if status == "vanished" else _us(fmean(afters)),
                None if status == "appeared" else _calls(name, before, calls_of),
                None if status == "vanished" else _calls(name, after, calls_of),
                _us(change),
            )
        )
    return sorted(changes, key=lambda row: (-abs(row.change_us), row.name))


def _status(
    name: str,
    before: Sequence[dict[str, Row]],
    after: Sequence[dict[str, Row]],
    befores: Sequence[float],
    afters: Sequence[float],
    time_of: Callable[[Row], float],
    calls_of: Callable[[Row], float | None],
) -> RowStatus | None:
    """None if a side's table may just have cut the name off: tables have only the MAX_ROWS longest."""
    if not any(name in table for table in before):
        return "appeared" if _cut_off(before, time_of) <= HIDDEN_SHARE * fmean(afters) else None
    if not any(name in table for table in after):
        return "vanished" if _cut_off(after, time_of) <= HIDDEN_SHARE * fmean(befores) else None
    ratio = fmean(afters) / fmean(befores) if fmean(befores) else inf
    counts = [_calls(name, side, calls_of) for side in (before, after)]
    if None in counts:
        return "slower" if ratio > 1 else "faster"
    calls = (counts[1] or 0.0) / counts[0] if counts[0] else inf
    if min(calls, ratio) > 1 + SAME_CALLS:
        return "more_calls"
    if max(calls, ratio) < 1 - SAME_CALLS:
        return "fewer_calls"
    return "slower" if ratio > 1 else "faster"


def _beyond_noise(status: RowStatus, befores: Sequence[float], afters: Sequence[float]) -> bool:
    """With one run per side, other numbers of calls are no noise, but the time of the same calls varies."""
    return times_differ(befores, afters) if status in _OF_THE_SAME_CALLS else differ(befores, afters) is not False


def _by_outliers(
    name: str, before: Sequence[dict[str, Row]], after: Sequence[dict[str, Row]], change_us: float
) -> bool:
    """Whether the median step hardly has the change, so that it comes from a few steps. False if it is not known."""
    medians = [_median_us(name, side) for side in (before, after)]
    if not all(medians):
        return False
    return abs((medians[1] or 0.0) - (medians[0] or 0.0)) < OF_MEDIAN * abs(change_us)


def _median_us(name: str, tables: Sequence[dict[str, Row]]) -> float | None:
    """The row's time in the median step, as a mean over the runs; None if a run does not know it."""
    known = [getattr(table[name], "median_us_per_step", None) for table in tables if name in table]
    return fmean(us for us in known if us is not None) if known and None not in known else None


def _cut_off(tables: Sequence[dict[str, Row]], time_of: Callable[[Row], float]) -> float:
    """The most time that a row in none of the tables can take."""
    return max((min(map(time_of, table.values())) for table in tables if len(table) >= MAX_ROWS), default=0.0)


def _calls(name: str, tables: Sequence[dict[str, Row]], calls_of: Callable[[Row], float | None]) -> float | None:
    """The calls per step, as a mean over the runs; None if a run does not know them."""
    known = [calls_of(table[name]) if name in table else 0.0 for table in tables]
    return None if None in known else round(fmean(calls for calls in known if calls is not None), 3)


def _time_of(name: str, parts: Sequence[BreakdownPart]) -> float:
    return sum(part.us_per_step for part in parts if part.name == name)


def _step_us(result: Result) -> float:
    """The typical step, which the parts and tables add up to."""
    return sum(part.us_per_step for part in result.breakdown) or result.step.typical_us or 0.0


def _us(value: float) -> float:
    return round(value, 3)
