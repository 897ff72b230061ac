"""Events that are not in a file although the rest of it shows that they happened, as after a hole in its text.

Nothing of the kind is in whole files: 100 real traces of all writers lack neither a launch nor a kernel.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import union
from traceopt.analyzer.tables.schema import I4
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.launch_links import LaunchLinks

_SILENT_SHARE = 0.2  # of the operators of a name: if more launch work, one that launches none is conspicuous
_SILENT_ROW = 5  # operators; whole files have up to three in a row, or far more where no id is missing
_LONG_JUMP, _UNUSUAL_JUMP = 16, 4  # of ids: absolute, and as a multiple of the 90th percentile
# Of a jump of the ids, the share of the usual number of operators, and of the time in operators or calls. Where a
# library makes calls that the profiler leaves out, an operator is open meanwhile.
_EMPTY_SHARE, _COVERED_SHARE = 0.125, 0.2


class Missing(Struct, frozen=True):
    """`count` of `of` events of one kind (or bytes of text, or ids of calls) that are not in the file."""

    kind: Literal["events", "text", "kernels", "copies", "launches", "operators", "calls"]
    count: int
    of: int

    @property
    def share(self) -> float:
        return self.count / self.of if self.of else 0.0


def arrow_ends(trace: Trace, links: LaunchLinks) -> int:
    """How many ends of arrows are not in the file, at least. The profiler numbers the arrows from forward to backward
    operators from 1, and draws one from each launch to each of its work.
    """
    numbers = distinct_values(trace.flows.id[trace.flows.id > 0])
    if not len(numbers) and not trace.meta.arrow_ends:
        return 0  # of a writer that draws none
    launches = links.launch[links.launch >= 0]
    ends = len(launches) + len(distinct_values(launches))
    between_operators = 2 * (int(numbers[-1]) - len(numbers)) if len(numbers) else 0
    return between_operators + max(0, ends - trace.meta.arrow_ends)


def holes(trace: Trace, links: LaunchLinks) -> tuple[Missing, ...]:
    """What is missing together with its launches, so that no link shows it."""
    known = np.flatnonzero(trace.runtime.correlation > 0)
    if not len(known) or not len(trace.ops):
        return ()
    calls = known[np.argsort(trace.runtime.correlation[known], kind="stable")].astype(np.int32)
    return _silent_operators(trace, links, calls), _skipped_calls(trace, calls)


def _silent_operators(trace: Trace, links: LaunchLinks, calls: I4) -> Missing:
    """Rows of operators that launch nothing although many of their names do, after the last call or between two whose
    ids are so far apart that calls are missing. `calls`: rows of runtime, by id.
    """
    ops = trace.ops
    launching = np.zeros(len(ops), bool)
    launching[links.op[links.op >= 0]] = True
    of_name = np.bincount(ops.name, minlength=len(trace.names))
    launching_of_name = np.bincount(ops.name[launching], minlength=len(trace.names))
    silent = ~launching & (launching_of_name > _SILENT_SHARE * of_name)[ops.name]
    place = np.searchsorted(ops.start[silent], np.maximum.accumulate(trace.runtime.start[calls]))
    following = np.diff(place, append=silent.sum())
    jumps = np.diff(trace.runtime.correlation[calls], append=np.iinfo(np.int64).max)
    missing = int(following[(following >= _SILENT_ROW) & (jumps >= following)].sum())
    return Missing("operators", missing, missing + int(launching.sum()))


def _skipped_calls(trace: Trace, calls: I4) -> Missing:
    """Unusual jumps of the ids of calls over a time in which the host does next to nothing."""
    runtime, ops = trace.runtime, trace.ops
    ids = runtime.correlation[calls]
    jumps = np.diff(ids)
    if not len(jumps):
        return Missing("calls", 0, 0)
    large = np.flatnonzero(jumps > max(_LONG_JUMP, _UNUSUAL_JUMP * np.percentile(jumps, 90)))
    start, end = runtime.end_of(calls[large]), runtime.start[calls[large + 1]]
    forward = end > start
    large, start, end = large[forward], start[forward], end[forward]
    total = int(ids[-1] - ids[0]) + 1
    usual = len(ops) / max(1, total - int(jumps[large].sum())) * jumps[large]
    begun = np.searchsorted(ops.start, end) - np.searchsorted(ops.start, start, side="right")
    host = union(np.append(ops.start, runtime.start), np.append(ops.end, runtime.end))
    empty = (begun <= _EMPTY_SHARE * usual) & (host.within(start, end) <= _COVERED_SHARE * (end - start))
    return Missing("calls", int(jumps[large[empty]].sum()), total)
