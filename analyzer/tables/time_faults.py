"""Times of a trace that cannot be, as reading found them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class TimeFault(Struct, frozen=True):
    """One kind of times that cannot be. `mended`: they were corrected; otherwise nothing that rests on them holds."""

    kind: Literal["clock", "drift", "overlap", "unit", "far", "left_out"]
    mended: bool
    count: int  # events that show it
    of: int  # events that could
    amount_ns: float = 0.0  # "clock", "drift": how far the GPU's clock is ahead; "far", "left_out": from the others
    device: int | None = None
