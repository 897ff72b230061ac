"""Columns of stacked parts as SVG paths, in a viewBox of COLUMN units per column x 100."""

from __future__ import annotations

from collections.abc import Sequence

COLUMN = 10  # units of the viewBox, including a gap on each side
_GAP = 1


def column_paths(parts: Sequence[Sequence[float | None]], top: float) -> list[str]:
    """A path for each part, stacked from the bottom up. `parts`: amounts by part and column; `top`: the amount at the
    upper edge.
    """
    bottoms = [0.0] * max((len(part) for part in parts), default=0)
    paths = []
    for part in parts:
        path = []
        for index, amount in enumerate(part):
            if amount:
                x, height = index * COLUMN + _GAP, amount / top * 100
                y = 100 - bottoms[index] - height
                path.append(f"M{x} {y:.1f}h{COLUMN - 2 * _GAP}v{height:.1f}H{x}z")
                bottoms[index] += height
        paths.append("".join(path))
    return paths
