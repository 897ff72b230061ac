"""The lines that calls were made from, which the exported trace does not hold.

A frame of the trace is named after the line that its function begins on. In memory the profiler knows the line of every
call; it is kept here of calls that torch does not make itself.
"""

from __future__ import annotations

from typing import Any

_NOT_KEPT = ("torch/", "<frozen")  # the profiler names files from sys.path on


def call_lines(profiler: Any) -> dict[str, Any] | None:
    """{"count", "rows", "lines"}: of the trace's `count` Python events in order of time, those that are kept, and the
    line of each one's caller. None without Python events.
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
    kept = [
        (row, caller.line_number)
        for row, (_, caller) in enumerate(events)
        if caller.line_number > 0 and not caller.file_name.startswith(_NOT_KEPT)
    ]
    return {"count": len(events), "rows": [row for row, _ in kept], "lines": [line for _, line in kept]}
