"""The ranks over the steps of the whole run, as rows of cells: what a heat map shows, and in words."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from traceopt.analyzer.vocabulary.causes.table import COMPUTE, DATA_LOADING
from traceopt.reports.words.rank_words import named_ranks
from traceopt.result.document import Result
from traceopt.result.sections.rank_rows import RunRanks
from traceopt.result.words import quantities

LEAST_FULL = 0.1  # a step that is so much longer has the full color, unless others are longer still

LONGER, SHORTER = DATA_LOADING.look.color, COMPUTE.look.color


class HeatRow(Struct, frozen=True):
    """A row of cells, one for each stretch: a color, how full it is (0..1), and what the cell means."""

    name: str
    colors: list[str]
    opacities: list[float]
    texts: list[str]


class HeatMap(Struct, frozen=True):
    """Rows from the top, the first steps of the stretches, the end of the last one, and how the colors read."""

    rows: list[HeatRow]
    first_steps: list[int]
    steps: int
    caption: str


def run_heat_map(document: Result) -> HeatMap | None:
    """None for a run without the steps of several ranks."""
    run = document.whole_run.ranks if document.whole_run is not None else None
    if run is None or len(run.first_steps) < 2:
        return None
    known = [us for us in run.us if us is not None]
    usual_us = sorted(known)[len(known) // 2] if known else 0.0
    median = [None if us is None or not usual_us else us / usual_us - 1 for us in run.us]
    top = max(LEAST_FULL, *(abs(value) for row in run.rows for value in row.longer if value is not None))
    rows = [_changes(named_ranks(row.ranks), row.longer, top, "the median of the others") for row in run.rows]
    rows.insert(0, _changes("Median rank", median, top, "its usual step"))
    shares = (("Evaluation", run.evaluation_share, "link"), ("Checkpoints", run.checkpoint_share, "ink"))
    rows += [_shares(name, values, color) for name, values, color in shares if any(values)]
    return HeatMap(rows, run.first_steps, run.steps, _caption(run, top))


def _changes(name: str, values: Sequence[float | None], top: float, than: str) -> HeatRow:
    return HeatRow(
        name,
        [LONGER if (value or 0.0) > 0 else SHORTER for value in values],
        [round(min(1.0, abs(value or 0.0) / top), 3) for value in values],
        [
            "not known: with a profiler" if value is None else f"{quantities.signed_percent(value)} to {than}"
            for value in values
        ],
    )


def _shares(name: str, values: Sequence[float], color: str) -> HeatRow:
    texts = [f"{quantities.percent(value)} of the time" for value in values]
    return HeatRow(name, [color] * len(values), [round(value, 3) for value in values], texts)


def _caption(run: RunRanks, top: float) -> str:
    several = max(len(row.ranks) for row in run.rows)
    rows = f"A row is {several} ranks, and shows the slowest of them. " if several > 1 else ""
    return (
        f"Steps 0 to {run.steps - 1:,}. {rows}Orange: longer than the median of the other ranks; full color: "
        f"{quantities.percent(top)} longer. Blue: shorter. The first row compares the median rank with its usual step."
    )
