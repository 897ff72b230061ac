"""Counts of what a step does. They hardly vary from run to run, so one run of each side shows that the work changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from traceopt.analyzer.vocabulary.op_names import is_backward, is_collection
from traceopt.document.tables.tables import MAX_ROWS
from traceopt.result.comparison import CountChange, CountUnit
from traceopt.result.document import Result
from traceopt.result.sections.work_rows import Kernel, Op

LEAST = 0.5  # per step: fewer more or less are steps of another kind among those that were recorded
LEAST_SHARE = 0.002  # the same of a total
MOST_NAMES = 20  # of operators, and of kernels
HOST_SYNCS = "Host syncs"


class _Total(Struct, frozen=True):
    """`of` is None where a run does not show it."""

    name: str
    unit: CountUnit
    of: Callable[[Result], float | None]


def _calls(rows: Sequence[Op | Kernel]) -> float | None:
    """None for a table that was cut."""
    return sum(row.calls_per_step for row in rows) if 0 < len(rows) < MAX_ROWS else None


def _collections(ops: Sequence[Op]) -> float | None:
    """None for a table that may hide them."""
    found = [op.calls_per_step for op in ops if is_collection(op.name)]
    return sum(found) if found or 0 < len(ops) < MAX_ROWS else None


def _bytes(rows: Iterable[float | None]) -> float | None:
    known = list(rows)
    return None if None in known else sum(number for number in known if number is not None)


_TOTALS = (
    _Total("Operators", "calls", lambda run: _calls(run.ops)),
    _Total("Kernels, copies and memsets", "calls", lambda run: _calls(run.kernels)),
    _Total(HOST_SYNCS, "calls", lambda run: run.sync.calls_per_step),
    _Total("Garbage collections", "calls", lambda run: _collections(run.ops)),
    _Total(
        "Collectives",
        "calls",
        lambda run: sum(collective.calls_per_step for collective in run.communication.collectives),
    ),
    _Total("Copied data", "bytes", lambda run: _bytes(copy.bytes_per_step for copy in run.copies)),
    _Total("Communicated data", "bytes", lambda run: _bytes(o.bytes_per_step for o in run.communication.collectives)),
    _Total("FLOP", "FLOP", lambda run: run.efficiency.flops_per_step),
)


def count_changes(base: Result, head: Result) -> list[CountChange]:
    """The totals that differ, and the operators and kernels with other numbers of calls: first new ones and those that
    are gone.
    """
    totals = [(total, total.of(base), total.of(head)) for total in _TOTALS]
    return [
        *(
            CountChange(total.name, total.unit, round(before, 3), round(after, 3))
            for total, before, after in totals
            if before is not None and after is not None and _differ(before, after)
        ),
        *_of_names(base.ops, head.ops),
        *_of_names(base.kernels, head.kernels),
    ]


def _differ(before: float, after: float) -> bool:
    return abs(after - before) >= max(LEAST, LEAST_SHARE * max(before, after))


def _of_names(base: Sequence[Op | Kernel], head: Sequence[Op | Kernel]) -> list[CountChange]:
    """A name that only one side has is gone or new, unless a table was cut. The root of a backward operator has the
    calls of the operator in it.
    """
    before, after = (
        {row.name: row.calls_per_step for row in rows if not is_backward(row.name) and not is_collection(row.name)}
        for rows in (base, head)
    )
    names = dict.fromkeys((*before, *after))
    if max(len(base), len(head)) >= MAX_ROWS:
        names = {name: None for name in names if name in before and name in after}
    changes = [CountChange(name, "calls", before.get(name, 0.0), after.get(name, 0.0), True) for name in names]
    different = [change for change in changes if _differ(change.base, change.head)]
    return sorted(different, key=lambda one: (bool(one.base and one.head), -abs(one.head - one.base), one.name))[
        :MOST_NAMES
    ]
