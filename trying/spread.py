"""Whether a change draws other random numbers and trains the same, by runs of both sides with several seeds.

Both sides run once with each seed, so they begin with the same weights. The losses of a run become two numbers: the
mean of each half of its steps. If the change only draws other random numbers, the difference of the sides is noise
around zero, and its mean over the seeds has a Student's t interval (99 %). The sides train differently if zero is
outside of it. They are only called the same if the interval also excludes a difference that would matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from traceopt.comparison.noise import t99

LOOKS = (8, 12, 16)  # runs of a side after which the answer may be known
HALVES = 2
LARGEST_SHARE = 0.1  # of the loss of the half in which it is larger: the same training has no larger difference


class SeededLosses(Struct, frozen=True):
    """`largest_share`: the largest difference of the mean losses that the seeds leave possible, as a part of the loss.

    `differs`: whether the sides train differently, beyond noise.
    """

    differs: bool
    largest_share: float

    @property
    def same(self) -> bool:
        return not self.differs and self.largest_share <= LARGEST_SHARE


def over_seeds(original: Sequence[Sequence[float]], changed: Sequence[Sequence[float]]) -> SeededLosses:
    """Each run is the loss of every step; the n-th runs of both sides have the same seed."""
    steps = min(map(len, (*original, *changed)), default=0)
    if len(original) != len(changed) or len(original) < LOOKS[0] or steps < HALVES:
        return SeededLosses(False, math.inf)
    before, after = (np.array([_halves(run[:steps]) for run in side]) for side in (original, changed))
    if not (np.isfinite(before).all() and np.isfinite(after).all()):
        return SeededLosses(True, math.inf)
    differences, loss = after - before, float(np.abs(before).mean(axis=0).max())
    mean = np.abs(differences.mean(axis=0))
    half_width = t99(len(before) - 1) * differences.std(axis=0, ddof=1) / math.sqrt(len(before))
    largest = float((mean + half_width).max())
    return SeededLosses(bool((mean > half_width).any()), largest / loss if loss else math.inf)


def _halves(losses: Sequence[float]) -> list[float]:
    return [float(half.mean()) for half in np.array_split(np.array(losses), HALVES)]
