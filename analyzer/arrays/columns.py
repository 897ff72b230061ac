"""Arrays of the same length as one value."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy.typing as npt
from msgspec import Struct

T = TypeVar("T", bound="Columns")


class Columns(Struct, frozen=True):
    """Base of values whose fields are all arrays, with one entry for each thing that they describe: shape (len,)."""

    def __len__(self) -> int:
        return len(getattr(self, self.__struct_fields__[0]))

    def take(self: T, rows: npt.NDArray[Any]) -> T:
        """The entries that an index array or a mask selects, in that order."""
        return type(self)(*(getattr(self, column)[rows] for column in self.__struct_fields__))
