"""Where the price of a fix comes from, the best source first."""

from __future__ import annotations

from enum import IntEnum


class Source(IntEnum):
    """Larger: less sure."""

    TRACE = 0
    DEVICE = 1
    KIND = 2
    DATASHEET = 3

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
