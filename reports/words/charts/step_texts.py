"""What charts say of each recorded step: its number, its parts, and how an unusual step differs from the others."""

from __future__ import annotations

import re
from collections.abc import Sequence

from traceopt.result.document import Result
from traceopt.result.sections.rank_rows import RankSteps
from traceopt.result.sections.work_rows import StepPart, StepSeries
from traceopt.result.words import quantities

HIGHEST = 3.0  # times the typical step: higher columns are cut
PARTS_NAMED = 4
LEAST_CHANGE = 1 << 20  # bytes of memory from step to step that are worth a word
_STEP_NUMBER = re.compile(r"#\d{1,12}$")  # more digits are no count


def step_label(series: StepSeries, index: int) -> str:
    """ "#12", the number in the name of a step; without one, its place among the recorded steps: "12"."""
    number = _STEP_NUMBER.search(series.names[index])
    return number[0] if number else str(series.first + index + 1)


def step_totals(series: StepSeries) -> list[float]:
    """The times of the steps, µs."""
    return [sum(parts) for parts in zip(*(part.us for part in series.parts), strict=True)]


def step_marks(result: Result, series: StepSeries, totals_us: Sequence[float]) -> list[str]:
    """How each unusual step differs from the typical one; "" for a typical step."""
    typical = set(result.step.typical_steps)
    return [
        "" if step in typical else _difference(total_us, result.step.typical_us)
        for step, total_us in enumerate(totals_us, series.first)
    ]


def step_text(series: StepSeries, index: int, total_us: float, mark: str) -> str:
    """ "ProfilerStep#8, 610.0 ms, unusual: 48% longer than the typical step. Waiting for data 385.0 ms; ...." """
    longest = sorted(series.parts, key=lambda part: -part.us[index])[:PARTS_NAMED]
    named = "; ".join(_part_text(part, index) for part in longest if part.us[index] > 0)
    unusual = f", {mark}" if mark else ""
    beside = _memory(series, index) + _over_ranks(series, index)
    return f"{series.names[index]}, {quantities.ms_of_us(total_us)}{unusual}. {named}.{beside}"


def rank_name(rank: RankSteps) -> str:
    return "file without a rank" if rank.rank is None else f"rank {rank.rank}"


def _memory(series: StepSeries, index: int) -> str:
    """ " Peak memory 31.2 GiB, 0.4 GiB more than in the step before."; "" if it was not recorded."""
    peaks = series.peak_memory_bytes
    peak = peaks[index] if peaks else None
    if peak is None:
        return ""
    before = peaks[index - 1] if index else None
    if before is None or abs(peak - before) < LEAST_CHANGE:
        return f" Peak memory {quantities.size(peak)}."
    change = f"{quantities.size(abs(peak - before))} {'more' if peak > before else 'less'}"
    return f" Peak memory {quantities.size(peak)}, {change} than in the step before."


def _over_ranks(series: StepSeries, index: int) -> str:
    """ " Over the ranks: 401.2 ms (rank 0) to 470.9 ms (rank 3)."; "" for a single rank."""
    times = [(rank.us[index], rank_name(rank)) for rank in series.ranks]
    if not times:
        return ""
    low, high = (f"{quantities.ms_of_us(us)} ({name})" for us, name in (min(times), max(times)))
    return f" Over the ranks: {low} to {high}."


def _part_text(part: StepPart, index: int) -> str:
    return f"{part.label} {quantities.ms_of_us(part.us[index])}"


def _difference(us: float, typical_us: float | None) -> str:
    if not typical_us:
        return "unusual"
    change = us / typical_us - 1
    return f"unusual: {quantities.percent(abs(change))} {'longer' if change > 0 else 'shorter'} than the typical step"
