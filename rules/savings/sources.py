"""Where the price of a fix comes from, the best source first."""

from __future__ import annotations

from enum import IntEnum

# Nine of ten sizes of the table differ by this share or less from what the others tell: `benchmarks/rates/make.py`.
KIND_ERROR = 0.15


class Source(IntEnum):
    """Larger: less sure."""

    TRACE = 0
    DEVICE = 1
    KIND = 2
    DATASHEET = 3

    @property
    def error(self) -> float:
        """By which share of it the time that is left may be wrong. Work that was measured itself has no error of its
        own; where nothing was measured, rules state how fast the work is at worst and at best.
        """
        return KIND_ERROR if self is Source.KIND else 0.0

    @property
    def words(self) -> str:
        """How the basis of a price begins."""
        return _WORDS[self]


_WORDS = {
    Source.TRACE: "Measured in this trace",
    Source.DEVICE: "Measured on this device, in the sizes of this run",
    Source.KIND: "Measured on another GPU of this kind, in similar sizes",
    Source.DATASHEET: "Not measured",
}
