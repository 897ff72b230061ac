#!/usr/bin/env python3
"""The least widths of ranges, from all measured pairs, and how well ranges of these widths hold.

python benchmarks/savings/widths.py    # prints what belongs into rules/savings/known_error.py
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from statistics import mean, median

from msgspec import Struct

if __name__ == "__main__":  # run as a script: the packages are two folders above
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

DEVICE_RULES = ("AT", "CV", "EF", "GM", "TC")


class Predicted(Struct, frozen=True):
    """A predicted gain with its range, and the measured one, in the same unit. `code`: of the rule."""

    code: str
    expected: float
    low: float
    high: float
    gain: float

    @property
    def of_device(self) -> bool:
        """Whether the fix shortens the device's own work."""
        return self.code.startswith(DEVICE_RULES)

    @property
    def error(self) -> float:
        """By how much the measured gain differs from the predicted one, as a share of the predicted one."""
        return self.gain / self.expected - 1

    def holds(self, width: float) -> bool:
        """Whether the gain lies in the range, if that is at least this share of the expected gain wide to each side."""
        return min(self.low, (1 - width) * self.expected) <= self.gain <= max(self.high, (1 + width) * self.expected)


def width_of(pairs: Sequence[Predicted]) -> float:
    """The share of the prediction by which measured gains differ at most, in whole per cents; 0 without any."""
    return ceil(100 * max((abs(pair.error) for pair in pairs), default=0.0)) / 100


def held(pairs: Sequence[Predicted]) -> str:
    """How well the ranges hold: in words for docs/accuracy.md."""
    if not pairs:
        return "No gain was predicted with a range."
    left_out = sum(pair.holds(width_of([other for other in pairs if other is not pair])) for pair in pairs)
    width = median((pair.high - pair.low) / pair.expected for pair in pairs)
    inside = sum(pair.holds(width_of(pairs)) for pair in pairs)
    of_device = [pair for pair in pairs if pair.of_device]
    of_host = [pair for pair in pairs if not pair.of_device]
    errors = [pair.error for pair in pairs]
    bias = f"{mean(errors):+.0%} on average, and by {median(errors):+.0%} in the"
    return f"""Measured gains differ from the predicted ones by {bias} median (bias).
All differ by {width_of(pairs):.0%} of the prediction or less, so no stated range is narrower: {len(of_device)} that \
shorten kernels
or operators by {width_of(of_device):.0%}, {len(of_host)} others by {width_of(of_host):.0%}.
{inside} of {len(pairs)} measured gains lie in the stated range; {left_out}, if only the other pairs set its width.
The median range is {width:.0%} of the predicted gain wide, from end to end."""


def main() -> None:
    from benchmarks.savings.captures import captured, predictions_of
    from benchmarks.savings.page import measured_on_cpu

    for name, pairs in (("ERROR_ON_CPU", measured_on_cpu()), ("ERROR_ON_GPU", predictions_of(captured()))):
        print(f"{name} = {width_of(pairs):.2f}\n{held(pairs)}\n")


if __name__ == "__main__":
    main()
