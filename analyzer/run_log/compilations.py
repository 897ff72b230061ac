"""What Dynamo noted in a run that `traceopt run` recorded, as the same table that a TORCH_TRACE log gives."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from traceopt.analyzer.tables.compilation import (
    Compilation,
    Compiled,
    FrameKey,
    GraphBreak,
    GraphSkip,
    merged_breaks,
    merged_skips,
    with_functions,
)
from traceopt.analyzer.tables.compile_metrics import MOST_LINE, compiled_row, graph_skip, phases_of
from traceopt.analyzer.tables.json_values import counts, rows, table, whole, word
from traceopt.analyzer.vocabulary.torch_compile import parse_reason, user_site

MOST_FRAMES = 64  # read of one stack
_ID = re.compile(r"^\[?(?P<frame>(?:!\d{1,9}/)?\d{1,9})/(?P<number>\d{1,9})")


def read_compilations(value: object) -> Compilation | None:
    """Reads the key `dynamo`; None if nothing was compiled."""
    notes = table(value)
    if not notes:
        return None
    compiled: list[Compiled] = []
    phases_ns: Counter[str] = Counter()
    for metrics in rows(notes.get("compilations")):
        phases_ns.update(phases_of(metrics))
        if not metrics.get("is_runtime"):
            compiled.append(compiled_row(metrics, _key(metrics), backward=metrics.get("is_forward") is False))
    compiled = with_functions(compiled)
    forward = sum(1 for one in compiled if not one.backward and one.failure is None)
    recorded = table(notes.get("graphs_recorded"))
    return Compilation(
        source="run",
        compiled=tuple(compiled),
        breaks=_breaks(notes),
        phases_ns=dict(phases_ns),
        graph_skips=_skips(compiled, counts(notes.get("inductor")).get("cudagraph_skips", 0)),
        graph_recordings=whole(recorded.get("recorded")),
        graph_rerecordings=whole(recorded.get("again")),
        missing=max(0, counts(notes.get("frames")).get("ok", 0) - forward),
    )


def _key(metrics: Mapping[str, Any]) -> FrameKey:
    found = _ID.match(word(metrics.get("id")) or "")
    return FrameKey(None, 0) if found is None else FrameKey(found["frame"], int(found["number"]))


def _breaks(notes: Mapping[str, Any]) -> tuple[GraphBreak, ...]:
    """With lines if they were noted; recordings of traceopt 0.1 have only counters."""
    found = [
        GraphBreak(parse_reason(row["reason"]), user_site(_stack(row.get("stack"))), count)
        for row in rows(notes.get("breaks"))
        if isinstance(row.get("reason"), str) and (count := whole(row.get("count")))
    ]
    counted = counts(notes.get("graph_break")).items()
    return merged_breaks(found or (GraphBreak(parse_reason(reason), None, count) for reason, count in counted))


def _stack(value: object) -> list[tuple[str, int, str]]:
    found = []
    for frame in value[:MOST_FRAMES] if isinstance(value, list) else []:
        if isinstance(frame, list) and len(frame) == 3:
            file, line, function = word(frame[0]), whole(frame[1], MOST_LINE), word(frame[2])
            if file and line and function:
                found.append((file, line, function))
    return found


def _skips(compiled: list[Compiled], counted: int) -> tuple[GraphSkip, ...]:
    """Skips that Inductor counted without noting a reason are one row."""
    found = [skip for row in compiled if (skip := graph_skip(row)) is not None]
    unknown = counted - len(found)
    return merged_skips([*found, *([GraphSkip("unknown reason", None, unknown)] if unknown > 0 else [])])
