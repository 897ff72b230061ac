"""The strip of steps: every recorded step as a column of its parts, with the unusual ones marked."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.vocabulary.causes.cause import Look
from traceopt.reports.html.charts.axes import Tick, round_values
from traceopt.reports.html.charts.stacked_columns import COLUMN, column_paths
from traceopt.reports.words.charts.step_texts import (
    HIGHEST,
    step_label,
    step_marks,
    step_text,
    step_totals,
)
from traceopt.reports.words.part_styles import part_style
from traceopt.reports.words.rank_words import rank_phrase
from traceopt.result.document import Result
from traceopt.result.sections.work_rows import StepSeries
from traceopt.result.words import quantities

MOST_COLUMNS = 400
MOST_PATTERNED = 48  # more columns are drawn as paths, which have no patterns
ROOM_ABOVE = 1.12  # for the marks of unusual steps
LABELS = 12
LEVELS = 4  # values of the axis, besides 0
MOST_COLUMN_PIXELS = 240  # with few steps, columns do not fill the width


class PartColumn(Struct, frozen=True):
    """A part of the steps: its name, look and times (us), its height in each column (per cent), and all of them as a
    path.
    """

    label: str
    look: Look
    us: list[float]
    heights: list[float]
    path: str


class StepColumn(Struct, frozen=True):
    """A step. `left` and `width` are per cent of the chart.

    `mark` says how an unusual step differs from the typical one, "" for a typical step. `cut` is the time of a step
    that is higher than the chart, else "". `text` describes the step.
    """

    left: float
    width: float
    label: str
    mark: str
    cut: str
    text: str


class StepStrip(Struct, frozen=True):
    """`parts` from the bottom up; `width` is the width of the paths' viewBox; `typical_top` is the typical step, per
    cent from the top, None if it is not known.
    """

    parts: list[PartColumn]
    columns: list[StepColumn]
    width: int
    patterned: bool
    shown: int
    typical_top: float | None
    typical_us: float | None
    levels: list[Tick]

    @property
    def marked(self) -> list[StepColumn]:
        """The unusual steps."""
        return [column for column in self.columns if column.mark]

    @property
    def labeled(self) -> list[StepColumn]:
        """The columns with a label below: all of them, or every few."""
        return self.columns[:: -(-len(self.columns) // LABELS)]


def drawn_series(result: Result) -> StepSeries | None:
    """At most MOST_COLUMNS of the recorded steps, with the shown one among them."""
    series = result.step.series
    if series is None or len(series.names) <= MOST_COLUMNS:
        return series
    first = max(0, min(series.shown - series.first - MOST_COLUMNS // 2, len(series.names) - MOST_COLUMNS))
    chosen = slice(first, first + MOST_COLUMNS)
    return replace(
        series,
        first=series.first + first,
        names=series.names[chosen],
        parts=[replace(part, us=part.us[chosen]) for part in series.parts],
        ranks=[replace(rank, us=rank.us[chosen]) for rank in series.ranks],
        peak_memory_bytes=series.peak_memory_bytes[chosen],
    )


def draw_steps(result: Result) -> StepStrip | None:
    """None if the document holds fewer than two steps, or none of them took any time."""
    series = drawn_series(result)
    if series is None or len(series.names) < 2:
        return None
    count = len(series.names)
    totals = step_totals(series)
    highest_us, typical_us = max(totals), result.step.typical_us
    if highest_us <= 0:
        return None
    if typical_us:
        highest_us = min(highest_us, typical_us * HIGHEST)
    top_us = highest_us * ROOM_ABOVE
    ordered = sorted(series.parts, key=lambda part: (not part.busy, -sum(part.us)))
    # Columns that are too high are cut, so that the others can be seen. Their parts keep their shares.
    scales = [min(1.0, highest_us / total) if total > 0 else 1.0 for total in totals]
    drawn = [[us * scale for us, scale in zip(part.us, scales, strict=True)] for part in ordered]
    paths = column_paths(drawn, top_us)
    parts = [
        PartColumn(
            part.label, part_style(part.name, part.busy), part.us, [_percent(us, top_us) for us in heights], path
        )
        for part, heights, path in zip(ordered, drawn, paths, strict=True)
    ]
    return StepStrip(
        parts=parts,
        columns=[
            _column(series, index, totals[index], mark, scales[index] < 1)
            for index, mark in enumerate(step_marks(result, series, totals))
        ],
        width=count * COLUMN,
        patterned=count <= MOST_PATTERNED,
        shown=min(max(0, series.shown - series.first), count - 1),
        levels=_levels(top_us),
        typical_us=typical_us,
        typical_top=None if typical_us is None or typical_us > top_us else 100 - _percent(typical_us, top_us),
    )


def _levels(top_us: float) -> list[Tick]:
    """Round times from 0 up; the highest has the unit."""
    unit = quantities.time_parts(top_us)[1]
    top = top_us / (1e6 if unit == "s" else 1e3)
    values, decimals = round_values(top, LEVELS)
    labels = [f"{value:,.{decimals}f}" if value else "0" for value in values]
    labels[-1] += f"{quantities.NO_BREAK_SPACE}{unit}"
    return [Tick(100 - _percent(value, top), label) for value, label in zip(values, labels, strict=True)]


def caption(result: Result, *, every_step: bool = False) -> str:
    """How many steps are drawn, and what a mark means. `every_step`: by the figure, which has room for all."""
    series, step = result.step.series if every_step else drawn_series(result), result.step
    if series is None:
        return ""
    drawn = len(series.names)
    of_all = f"Steps {series.first + 1:,} to {series.first + drawn:,} of {step.count:,}"
    opening = f"{drawn:,} recorded steps" if drawn == step.count else of_all
    rank, totals = rank_phrase(result), step_totals(series)
    shortest, longest = quantities.ms_of_us(min(totals)), quantities.ms_of_us(max(totals))
    took = f", {shortest} to {longest}" if shortest != longest else ""
    sentences = [f"{opening}{took}, {rank}." if rank else f"{opening}{took}."]
    unusual = step.count - len(step.typical_steps)
    if unusual:
        verb = "is" if unusual == 1 else "are"
        sentences.append(
            f"▲ marks {quantities.counted(unusual, 'unusual step')}, which {verb} not part of the typical step."
        )
    if step.typical_us and max(totals) > HIGHEST * step.typical_us:
        sentences.append(f"Columns are cut at {HIGHEST:.0f} times the typical step.")
    return " ".join(sentences)


def _column(series: StepSeries, index: int, total_us: float, mark: str, cut: bool) -> StepColumn:
    count = len(series.names)
    return StepColumn(
        left=round(index / count * 100, 3),
        width=round(100 / count, 3),
        label=step_label(series, index),
        mark=mark,
        cut=quantities.ms_of_us(total_us) if cut else "",
        text=step_text(series, index, total_us, mark),
    )


def _percent(part: float, whole: float) -> float:
    return round(part / whole * 100, 2)
