"""The section of the reports about torch.compile."""

from __future__ import annotations

from traceopt.reports.words.companions.section import CompanionSection
from traceopt.reports.words.tables import Derived, shown_table
from traceopt.result.document import Result
from traceopt.result.sections.companions import TorchCompile
from traceopt.result.tables.columns import Column, Table
from traceopt.result.words.quantities import counted

PHASE_LABELS = {
    "dynamo": "Dynamo: trace Python",
    "aot_autograd": "AOTAutograd: forward and backward graph",
    "inductor": "Inductor: lower and schedule",
    "code_generation": "Inductor: generate code",
    "kernel_compilation": "Compile kernels",
    "autotuning": "Autotune kernels",
    "cuda_graph_recording": "Record CUDA graphs",
}
PHASES = Table(
    "compile-phases",
    "Time by phase",
    (Column("label", "Phase", "word"), Column("us", "Seconds", "seconds"), Column("share", "Share", "share")),
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


def section(result: Result) -> CompanionSection | None:
    """None if nothing was compiled, or it was not recorded."""
    known = result.torch_compile
    if known is None:
        return None
    total = sum(phase.us for phase in known.phases)
    phase: Derived = {"label": lambda phase: PHASE_LABELS[phase.name], "share": lambda phase: phase.us / total}
    return CompanionSection(
        anchor="compile",
        title="Compile",
        known=known,
        lines=_lines(known),
        sentences=[_summary(known)],
        tables=[
            shown_table(PHASES, known.phases if total else [], derived=phase),
            shown_table(BREAKS, known.breaks),
            shown_table(RECOMPILATIONS, known.recompilations),
            shown_table(FALLBACKS, known.fallbacks),
            shown_table(GRAPH_SKIPS, known.graph_skips),
        ],
    )


def _lines(known: TorchCompile) -> list[str]:
    said = [_summary(known)]
    if known.breaks:
        first = known.breaks[0]
        where = f" at {first.location}" if first.location is not None else ""
        said.append(f"{counted(len(known.breaks), 'graph break')}, most often{where}: {first.reason}")
    if known.recompilations:
        again = known.recompilations[0]
        where = f" ({again.location})" if again.location is not None else ""
        times = counted(sum(recompilation.count for recompilation in known.recompilations), "time")
        said.append(
            f"Recompiled {times}. Most time went to "
            f"{again.function or 'a function'}(){where}, where this guard failed: {again.guard}"
        )
    if known.graph_skips:
        said.append(f"CUDA graphs were skipped: {known.graph_skips[0].reason}")
    return said


def _summary(known: TorchCompile) -> str:
    """ "torch.compile compiled 18 frames in 29.4 s."."""
    seconds = f" in {known.us / 1e6:.3g} s" if known.us is not None else ""
    processes = f" of {known.processes} processes" if known.processes > 1 else ""
    return f"torch.compile compiled {counted(known.compilations, 'frame')}{processes}{seconds}."
