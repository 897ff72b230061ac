"""torch.compile in the result document, and its headline where there is no trace."""

from __future__ import annotations

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.compilation import PHASES, Compilation
from traceopt.result.sections.companions import (
    CompileAgain,
    CompileBreak,
    CompileFallback,
    CompileGraphSkip,
    CompilePhase,
    TorchCompile,
)
from traceopt.result.words.quantities import counted
from traceopt.result.words.rounding import rate

MOST_ROWS = 50
MOST_VALUES = 5


def section(facts: Facts) -> TorchCompile | None:
    """None if nothing was compiled, or it was not recorded."""
    known = facts.compilation
    if known is None:
        return None
    pieces = facts.compiled_pieces.per_step if facts.has_trace else 0.0
    in_steps = set(facts.graph_breaks) if pieces else None
    return TorchCompile(
        source=known.source,
        processes=known.processes,
        compilations=known.count,
        unknown=known.missing,
        us=_us(known.total_ns),
        phases=[CompilePhase(name, time / 1e3) for name in PHASES if (time := known.phases_ns.get(name))],
        breaks=[
            CompileBreak(
                reason=one.text.title,
                explanation=one.text.explanation,
                hint=next(iter(one.text.hints), None),
                page=one.text.page,
                location=one.site,
                count=one.count,
                in_steps=None if in_steps is None else one in in_steps,
            )
            for one in known.breaks[:MOST_ROWS]
        ],
        recompilations=[
            CompileAgain(
                function=recompilation.function,
                guard=recompilation.guards[0].guard,
                other_values=[guard.guard for guard in recompilation.guards[1 : MOST_VALUES + 1]],
                kind=recompilation.guards[0].kind,
                location=recompilation.site,
                count=recompilation.count,
                us=_us(recompilation.total_ns),
            )
            for recompilation in known.recompilations[:MOST_ROWS]
        ],
        fallbacks=[
            CompileFallback(fallback.function, fallback.text.title, fallback.cause)
            for fallback in known.fallbacks[:MOST_ROWS]
        ],
        graph_skips=[CompileGraphSkip(skip.reason, skip.site, skip.count) for skip in known.graph_skips[:MOST_ROWS]],
        graph_recordings=known.graph_recordings,
        graph_rerecordings=known.graph_rerecordings,
        pieces_per_step=rate(pieces) if pieces else None,
    )


def headline(facts: Facts) -> str | None:
    """The worst that torch.compile did; None if it was not recorded."""
    known = facts.compilation
    if known is None:
        return None
    if known.fallbacks:
        first = known.fallbacks[0]
        return f"torch.compile gave up on {first.function or 'a function'}(): {first.text.title}."
    if known.breaks:
        first_break = known.breaks[0]
        return f"torch.compile breaks the graph at {counted(len(known.breaks), 'place')}: {first_break.text.title}."
    return _compiled(known)


def _compiled(known: Compilation) -> str:
    again = sum(recompilation.count for recompilation in known.recompilations)
    seconds = f" in {known.total_ns / 1e9:.3g} s" if known.total_ns is not None else ""
    recompiled = f", {again:,} of them again" if again else ""
    return f"torch.compile compiled {counted(known.count, 'frame')}{seconds}{recompiled}, without a graph break."


def _us(time_ns: int | None) -> float | None:
    return None if time_ns is None else time_ns / 1e3
