"""The section of the report about torch.compile."""

from __future__ import annotations

from msgspec import Struct

from traceopt.reports.html.companions.section import Section
from traceopt.reports.words.companions import torch_compile as words
from traceopt.reports.words.tables import Derived, ShownTable, shown_table
from traceopt.result.columns import Column, Table
from traceopt.result.companions.torch_compile import TorchCompile
from traceopt.result.document import Result

PHASES = Table(
    "compile-phases",
    "Time by phase",
    (
        Column("label", "Phase", "word"),
        Column("us", "Seconds", "seconds"),
        Column("share", "Share", "share"),
    ),
    narrow=True,
    sortable=False,
)
BREAKS = Table(
    "breaks",
    "Graph breaks",
    (
        Column("location", "Line", "place"),
        Column("count", "Times", "count"),
        Column("in_steps", "In the steps", "yes_no"),
        Column("reason", "Reason", "special"),
    ),
    sortable=False,
)
RECOMPILATIONS = Table(
    "recompilations",
    "Recompilations",
    (
        Column("function", "Function", "name"),
        Column("count", "Times", "count"),
        Column("us", "Seconds", "seconds"),
        Column("guard", "Guard that failed", "special"),
        Column("location", "Line", "place"),
    ),
    sortable=False,
)
FALLBACKS = Table(
    "fallbacks",
    "Functions that run in eager mode",
    (Column("function", "Function", "name"), Column("reason", "Reason", "text"), Column("location", "Line", "place")),
    sortable=False,
)
GRAPH_SKIPS = Table(
    "graph-skips",
    "Skipped CUDA graphs",
    (
        Column("reason", "Skipped because", "text"),
        Column("count", "Times", "count"),
        Column("location", "Line", "place"),
    ),
    sortable=False,
)


class CompileView(Struct, frozen=True):
    """What the template prints."""

    known: TorchCompile
    summary: str
    kinds: str
    phases: ShownTable
    breaks: ShownTable
    recompilations: ShownTable
    fallbacks: ShownTable
    graph_skips: ShownTable


def section(result: Result) -> Section | None:
    """None if nothing was compiled, or it was not recorded."""
    known = result.torch_compile
    if known is None:
        return None
    total = sum(phase.us for phase in known.phases)
    phase: Derived = {"label": lambda phase: words.PHASES[phase.name], "share": lambda phase: phase.us / total}
    view = CompileView(
        known,
        words.summary(known),
        "its log (TORCH_TRACE)" if known.source == "log" else "traceopt run",
        shown_table(PHASES, known.phases if total else [], derived=phase),
        shown_table(BREAKS, known.breaks),
        shown_table(RECOMPILATIONS, known.recompilations),
        shown_table(FALLBACKS, known.fallbacks),
        shown_table(GRAPH_SKIPS, known.graph_skips),
    )
    return Section("compile", "Compile", "torch_compile.html.j2", view)
