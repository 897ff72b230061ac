"""Numbers for texts and other values, in the order in which they first appear."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from itertools import count
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

Value = TypeVar("Value", bound=Hashable)


class Codes(Generic[Value]):
    __slots__ = ("_codes",)

    def __init__(self) -> None:
        self._codes: defaultdict[Value, int] = defaultdict(count().__next__)

    def __len__(self) -> int:
        return len(self._codes)

    def of(self, value: Value) -> int:
        return self._codes[value]

    def encode(self, values: Iterable[Value], n: int) -> npt.NDArray[np.int32]:
        """Codes of n values. For strings, one dictionary lookup per value is the fastest way."""
        return np.fromiter(map(self._codes.__getitem__, values), np.int32, n)

    def values(self) -> list[Value]:
        return list(self._codes)
