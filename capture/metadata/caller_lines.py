"""Caller lines: the source lines that calls were made from, which are missing in an exported trace.

A frame in the trace is named after the line where its function begins. In memory the profiler knows the line of every
call; this module saves it for calls that torch does not make itself.
"""

from __future__ import annotations

from typing import Any

_SKIPPED = ("torch/", "<frozen")  # the profiler cuts file names after the sys.path entry


def call_lines(profiler: Any) -> dict[str, Any] | None:
    """{"count", "rows", "lines"}: the number of the trace's Python events, the saved ones among them in order of time,
    and the line of each one's caller. None without Python events.
    """
    events = []  # (start, the caller)
    below = list(profiler.profiler.kineto_results.experimental_event_tree())
    while below:
        event = below.pop()
        below += event.children
        caller = getattr(event.extra_fields, "caller", None)
        if caller is not None:
            events.append((event.start_time_ns, caller))
    if not events:
        return None
    events.sort(key=lambda event: event[0])
    saved = [
        (row, caller.line_number)
        for row, (_, caller) in enumerate(events)
        if caller.line_number > 0 and not caller.file_name.startswith(_SKIPPED)
    ]
    return {"count": len(events), "rows": [row for row, _ in saved], "lines": [line for _, line in saved]}
