"""What runs while each process group communicates, as a matrix."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.reports.figures.figure import (
    FigureDict,
    Trace,
    color,
    figure,
    label,
    lines,
    nothing,
    plain,
    row_of_cells,
    rows_axis,
)
from traceopt.result.document import Result
from traceopt.result.sections.rank_rows import GroupOverlapRow
from traceopt.result.words import quantities

TITLE = "What overlaps each process group"
COMPUTE, OTHER_GROUP = "compute", "comm"  # colors
OPACITY = 0.6  # of a cell that is always overlapped: its text stays readable


def draw(document: Result) -> FigureDict:
    """A row of cells for each group, a column for each kind of work and then for each group."""
    rows = document.communication.overlaps
    if not rows:
        return nothing(TITLE, "Nothing runs while a process group communicates, or the trace does not name the groups.")
    groups = list(dict.fromkeys(row.group for row in rows))
    columns = list(dict.fromkeys(row.beside for row in sorted(rows, key=lambda row: row.is_group)))
    upwards = list(reversed(groups))
    return figure(
        TITLE,
        [_cells(group, columns, rows) for group in upwards],
        subtitle="Part of the time in which a group (row) communicates. Several can run at once.",
        barmode="stack",
        bargap=0,
        height=180 + 44 * len(groups),
        xaxis={"type": "category"},
        yaxis=rows_axis(upwards),
    )


def _cells(group: str, columns: Sequence[str], rows: Sequence[GroupOverlapRow]) -> Trace:
    known = {row.beside: row for row in rows if row.group == group}
    found = [known.get(column) for column in columns]
    shares = [0.0 if row is None else row.share for row in found]
    colors = [OTHER_GROUP if row is not None and row.is_group else COMPUTE for row in found]
    texts = [_hover(group, column, row) for column, row in zip(columns, found, strict=True)]
    return {
        **row_of_cells(group, [*map(label, columns)], colors, [round(OPACITY * share, 3) for share in shares], texts),
        "text": [plain(quantities.percent(share)) if share else "" for share in shares],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "insidetextfont": {"color": color("ink")},
    }


def _hover(group: str, column: str, row: GroupOverlapRow | None) -> str:
    time = (
        "never" if row is None else f"{quantities.ms_of_us(row.us_per_step)} per step, {quantities.percent(row.share)}"
    )
    return lines(group, f"{column}: {time}")
