"""The parts of each rank's step as stacked rows or columns, so that stragglers stand out."""

from __future__ import annotations

from statistics import median

from msgspec import Struct

from traceopt.analyzer.vocabulary.causes.table import COMMUNICATION, COMPUTE, DATA_LOADING, UNTRACED
from traceopt.reports.html.charts.axes import Tick
from traceopt.reports.html.charts.stacked_columns import COLUMN, column_paths
from traceopt.reports.words.step_words import step_noun
from traceopt.result.document import Result
from traceopt.result.rows import RankRow
from traceopt.result.words import quantities

MAX_COLUMNS = 256
ROOM_ABOVE = 1.14  # leaves room for the label of the median
MOST_ROWS = 8  # ranks drawn as rows; more ranks are drawn as columns
TICKS = 8

# Look and name of the parts from the bottom up, for ranks with and without a GPU.
_GPU_PARTS = (
    (COMPUTE.look, "GPU busy: compute and copies"),
    (COMMUNICATION.look, COMMUNICATION.label),
    (DATA_LOADING.look, DATA_LOADING.label),
    (UNTRACED.look, "Idle for other reasons"),
)
_CPU_PARTS = ((COMPUTE.look, "Model work and everything else"), *_GPU_PARTS[1:3])


class RankPart(Struct, frozen=True):
    """A part of the step: its color, pattern and name, and its time on each rank (None: not recorded)."""

    color: str
    pattern: str
    label: str
    us: list[float | None]


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


def rank_names(rows: list[RankRow]) -> list[str]:
    """The rank numbers; "engine" for an inference engine, "file 3" for another file without a rank."""
    return [
        str(row.rank) if row.rank is not None else row.engine or f"file {index}" for index, row in enumerate(rows, 1)
    ]


def rank_parts(rows: list[RankRow]) -> list[RankPart]:
    """The steps of the rows in exclusive parts: GPU parts if every rank with a step recorded its GPU."""
    on_gpu = all(row.gpu_busy_share is not None for row in rows if row.step_us is not None)
    amounts = [_gpu_amounts(row) if on_gpu else _cpu_amounts(row) for row in rows]
    looks = _GPU_PARTS if on_gpu else _CPU_PARTS
    parts = [
        RankPart(look.color, look.pattern, label, [amount[index] for amount in amounts])
        for index, (look, label) in enumerate(looks)
    ]
    return [part for part in parts if any(part.us)]


def _gpu_amounts(row: RankRow) -> list[float | None]:
    step, busy_share = row.step_us, row.gpu_busy_share
    if step is None or busy_share is None:
        return [None] * len(_GPU_PARTS)
    busy = step * busy_share
    exposed = min(row.exposed_communication_us or 0.0, busy)
    loading = min(row.dataloader_stall_us or 0.0, step - busy)
    return [busy - exposed, exposed, loading, step - busy - loading]


def _cpu_amounts(row: RankRow) -> list[float | None]:
    step = row.step_us
    if step is None:
        return [None] * len(_CPU_PARTS)
    exposed = min(row.exposed_communication_us or 0.0, step)
    loading = min(row.dataloader_stall_us or 0.0, step - exposed)
    return [step - exposed - loading, exposed, loading]


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
