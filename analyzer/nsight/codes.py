"""Numbers for texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.tables.schema import I8


class Codes:
    """Numbers texts in the order in which they first appear."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def of(self, text: str) -> int:
        return self._codes.setdefault(text, len(self._codes))

    def of_ids(self, ids: I8, names: Sequence[str], distinct: I8) -> npt.NDArray[np.int32]:
        """Codes of rows whose ids are among the sorted `distinct` ones, which have these names."""
        codes = np.array([self.of(name) for name in names], np.int32)
        return codes[np.searchsorted(distinct, ids)] if len(ids) else np.empty(0, np.int32)

    def values(self) -> list[str]:
        return list(self._codes)
