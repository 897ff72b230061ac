"""The parts of each rank's step as stacked rows or columns, so that stragglers stand out."""

from __future__ import annotations

from statistics import median

from msgspec import Struct

from traceopt.reports.html.charts.axes import Tick
from traceopt.reports.html.charts.stacked_columns import COLUMN, column_paths
from traceopt.reports.words.charts.rank_parts import RankPart, rank_names, rank_parts
from traceopt.reports.words.step_words import step_noun
from traceopt.result.document import Result
from traceopt.result.words import quantities

MAX_COLUMNS = 256
ROOM_ABOVE = 1.14  # leaves room for the label of the median
MOST_ROWS = 8  # ranks drawn as rows; more ranks are drawn as columns
TICKS = 8


class RankDrawing(Struct, frozen=True):
    """Few ranks are rows: their names, and their lengths as shares of the longest. Many ranks are columns: one SVG path
    per part in a viewBox of `width` x 100, with the median as a height and `top_us` at the upper edge.
    """

    names: list[str]
    shares: list[float]
    parts: list[RankPart]

    width: int
    paths: list[str]
    median: float
    median_us: float
    top_us: float
    ticks: list[Tick]


def draw_ranks(result: Result) -> RankDrawing | None:
    """None if fewer than two ranks have a step."""
    rows = result.ranks[:MAX_COLUMNS]
    steps = [row.step_us for row in rows if row.step_us]
    if len(steps) < 2:
        return None
    top_us = max(steps) * ROOM_ABOVE
    names = rank_names(rows)
    parts = rank_parts(rows)
    every = -(-len(rows) // TICKS)
    return RankDrawing(
        names=names,
        shares=[(row.step_us or 0.0) / max(steps) for row in rows],
        parts=parts,
        width=len(rows) * COLUMN,
        paths=column_paths([part.us for part in parts], top_us),
        median=round(100 - median(steps) / top_us * 100, 1),
        median_us=median(steps),
        top_us=top_us,
        ticks=[Tick(round((index + 0.5) / len(rows) * 100, 2), names[index]) for index in range(0, len(rows), every)],
    )


def caption(result: Result) -> str:
    """How far apart the ranks' steps are, and how many ranks are drawn."""
    names = rank_names(result.ranks)
    steps = [(row.step_us, row.process or name) for row, name in zip(result.ranks, names, strict=True)]
    known = [(us, name) for us, name in steps if us is not None]
    noun = "recording" if step_noun(result) == "recording" else "typical step"
    sentences = []
    if len(known) > 1:
        (least, fastest), (most, slowest) = min(known), max(known)
        if quantities.ms_of_us(least) == quantities.ms_of_us(most):
            sentences.append(f"The {noun} takes {quantities.ms_of_us(most)} on every rank.")
        else:
            ends = f"{quantities.ms_of_us(least)} ({fastest}) to {quantities.ms_of_us(most)} ({slowest})"
            sentences.append(f"{noun.capitalize()}s range from {ends}.")
    if len(result.ranks) > MAX_COLUMNS:
        sentences.append(f"The chart shows the first {MAX_COLUMNS} of {len(result.ranks):,} ranks.")
    return " ".join(sentences)
