"""Fused attention on the device, by size."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import group_rows, split
from traceopt.analyzer.tables.json_values import listed
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.vocabulary.formulas.flop_formulas import FUSED_ATTENTION, attention_arguments
from traceopt.result.experiments import DTYPES, Attention


class AttentionCalls(Struct, frozen=True):
    """Calls of one size inside the window. `calls`: of the forward; `duration_ns`: also of the backward."""

    work: Attention
    calls: int
    duration_ns: int


def find_attention_calls(regions: Regions) -> list[AttentionCalls]:
    """Fused attention whose sizes were recorded, longest first."""
    trace, slices = regions.trace, regions.slices
    rows = np.flatnonzero(regions.named(FUSED_ATTENTION.__contains__, OP)).astype(np.int64)
    time = regions.work_ns(rows)
    rows, time = rows[time > 0], time[time > 0]
    columns = [
        column[slices.row[rows]] for column in (trace.ops.name, trace.ops.dims, trace.ops.concrete, trace.ops.types)
    ]
    first, group = group_rows(*columns)
    found: dict[Attention, AttentionCalls] = {}
    backward: set[Attention] = set()
    for row, times in zip(first.tolist(), split(time, group, len(first)), strict=False):
        name, *codes = (int(column[row]) for column in columns)
        texts = (listed(trace.texts[code]) if code >= 0 else None for code in codes)
        known = attention_arguments(trace.names[name], *texts)
        if known is None or known["dtype"] not in DTYPES:
            continue
        back, work = known.pop("backward"), Attention(**known)
        mine = found.get(work, AttentionCalls(work, 0, 0))
        calls = mine.calls + (0 if back else len(times))
        found[work] = AttentionCalls(work, calls, mine.duration_ns + int(times.sum()))
        if back:
            backward.add(work)
    all_calls = (replace(one, work=replace(one.work, backward=one.work in backward)) for one in found.values())
    return sorted((call for call in all_calls if call.calls), key=lambda one: -one.duration_ns)
