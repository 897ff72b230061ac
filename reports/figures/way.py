"""The way down: the step of the original script, and after each change that `traceopt try` or `tune` kept."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from traceopt.reports.figures.figure import FigureDict, Trace, color, figure, label, lines, nothing, plain
from traceopt.reports.words.comparing import trial_words
from traceopt.result.document import Result
from traceopt.result.trial import TriedChange
from traceopt.result.words import quantities

TITLE = "The way down"
ORIGINAL = "original"


def kept_one_by_one(tried: Sequence[TriedChange]) -> list[TriedChange]:
    """Each was measured on top of those before it."""
    return [row for row in tried if row.verdict == "keep" and row.kind != "all" and row.gain_share is not None]


def draw(document: Result) -> FigureDict:
    """A column for each change that was kept, with its 99 % interval, and a mark for all of them together."""
    kept = kept_one_by_one(document.tried)
    if not kept:
        return nothing(TITLE, "No change was kept.")
    levels = list(accumulate((1 - (row.gain_share or 0.0) for row in kept), mul, initial=1.0))
    half_widths = [0.0, *(level * _half_width(row) for level, row in zip(levels, kept, strict=False))]
    texts = ["the script as it was", *(lines(row.title, trial_words.measured(row), _round(row)) for row in kept)]
    bars: Trace = {
        "type": "bar",
        "name": "one by one",
        "x": [label(ORIGINAL), *(label(row.name) for row in kept)],
        "y": [_percent(level) for level in levels],
        "error_y": {"type": "data", "array": [_percent(half) for half in half_widths], "color": color("ink")},
        "text": [plain(quantities.percent(level)) for level in levels],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "insidetextfont": {"color": color("bg")},
        "hovertext": texts,
        "hoverinfo": "text",
        "marker": {"color": color("compute")},
    }
    return figure(
        TITLE,
        [bars, *_together(document.tried, label(kept[-1].name))],
        subtitle="Step of the original script = 100 %.",
        height=360,
        yaxis={"title": "step, %", "rangemode": "tozero"},
    )


def _together(tried: Sequence[TriedChange], at: str) -> list[Trace]:
    """The original against all that was kept, measured at the end."""
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "all together",
            "x": [at],
            "y": [_percent(1 - row.gain_share)],
            "error_y": {"type": "data", "array": [_percent(_half_width(row))], "color": color("ink")},
            "text": [lines("all that was kept, against the original", trial_words.measured(row))],
            "hovertemplate": "%{text}<extra></extra>",
            "marker": {"symbol": "diamond", "size": 11, "color": color("ink")},
        }
        for row in tried
        if row.kind == "all" and row.gain_share is not None
    ]


def _half_width(row: TriedChange) -> float:
    return 0.0 if row.low_share is None or row.high_share is None else (row.high_share - row.low_share) / 2


def _round(row: TriedChange) -> str:
    return f"round {row.tuning_round}" if row.tuning_round is not None else ""


def _percent(share: float) -> float:
    return float(f"{100 * share:.4g}")
