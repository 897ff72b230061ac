"""Gradients that the script clears before their optimizer reads them, as `traceopt run` counted them."""

from __future__ import annotations

from msgspec import Struct

from traceopt.analyzer.run_log.constructions import Construction, read_construction
from traceopt.analyzer.tables.json_values import rows, whole

MOST_ROWS = 100
MOST_TENSORS = 2000
USUALLY = 0.8  # of the runs of a backward pass: gradients that are read now and then are needed


class ClearedGradients(Struct, frozen=True):
    """The backward pass number `backward` of the `backwards` in each step, from 0, computes gradients of one optimizer
    that are cleared, and others that are read. `shapes` are those of the cleared gradients, `built` is where the script
    constructed the optimizer.
    """

    backward: int
    backwards: int
    shapes: tuple[tuple[int, ...], ...]
    built: Construction | None = None


def read_cleared_gradients(value: object) -> tuple[ClearedGradients, ...] | None:
    """Those that are cleared nearly always; None if that was not recorded."""
    if not isinstance(value, list):
        return None
    found = []
    for row in rows(value)[:MOST_ROWS]:
        backward, backwards = whole(row.get("backward")), whole(row.get("of"))
        runs, cleared, shapes = whole(row.get("runs")), whole(row.get("cleared")), _shapes(row.get("shapes"))
        if backward is None or backwards is None or not runs or cleared is None or not shapes:
            continue
        if backward < backwards and USUALLY * runs <= cleared <= runs:
            found.append(ClearedGradients(backward, backwards, shapes, read_construction(row.get("built"))))
    return tuple(found)


def _shapes(value: object) -> tuple[tuple[int, ...], ...]:
    """Empty if one of them is no shape."""
    sizes = value[:MOST_TENSORS] if isinstance(value, list) else []
    known = all(isinstance(size, list) and all(whole(one) is not None for one in size) for size in sizes)
    return tuple(map(tuple, sizes)) if known else ()
