"""What the profiler and the driver do in the midst of a call, which the file holds without its thread."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.tables.schema import I8, RuntimeTable, Spans, ThreadSpans
from traceopt.analyzer.vocabulary.runtime_calls import OVERHEADS

_NEVER = np.iinfo(np.int64).min


def with_overheads(
    runtime: RuntimeTable, overheads: Spans, others: Sequence[ThreadSpans], names: list[str]
) -> RuntimeTable:
    """The runtime calls, and the known overheads as calls inside of those that they hold up: on the thread which is in
    the midst of an event and shows nothing new meanwhile; of several, the one that did so last. `others`: the remaining
    tables of the threads. An overhead that holds up no thread is left out.
    """
    known = np.array([name in OVERHEADS for name in names] or [False])
    overheads = overheads.take(known[overheads.name])
    if not len(overheads) or not len(runtime):
        return runtime
    thread, last = np.full(len(overheads), -1, np.int32), np.full(len(overheads), _NEVER)
    for one in distinct_values(runtime.thread):
        since = _silent_since([table.take(table.thread == one) for table in (runtime, *others)], overheads)
        later = since > last
        thread[later], last[later] = one, since[later]
    held = np.flatnonzero(thread >= 0)
    found = RuntimeTable(
        start=overheads.start[held],
        duration=overheads.duration[held],
        name=overheads.name[held],
        thread=thread[held],
        correlation=np.full(len(held), -1),
    )
    columns = {c: np.concatenate((getattr(runtime, c), getattr(found, c))) for c in RuntimeTable.SCHEMA}
    return RuntimeTable(**columns).take(np.argsort(columns["start"], kind="stable"))


def _silent_since(tables: Sequence[Spans], overheads: Spans) -> I8:
    """When a thread with these tables last began or ended an event before each overhead; `_NEVER`, if it is in no event
    then or does so during the overhead.
    """
    starts = np.sort(np.concatenate([table.start for table in tables]))
    ends = np.sort(np.concatenate([table.end for table in tables]))
    borders = np.sort(np.concatenate((starts, ends)))
    before = np.searchsorted(borders, overheads.start, side="right")
    silent = before == np.searchsorted(borders, overheads.end, side="left")
    inside = np.searchsorted(starts, overheads.start, side="right") > np.searchsorted(ends, overheads.start, "right")
    return np.where(silent & inside, borders[before - 1], _NEVER)
