"""What the NVTX ranges of a file mean, as codes: each text is read once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.codes import Codes
from traceopt.analyzer.nsight.database import Database, decoded
from traceopt.analyzer.nsight.ranges import Range, read_range
from traceopt.analyzer.nsight.table_pages import Texts
from traceopt.analyzer.tables.schema import I8

_NO_NAME = "(no name)"
_MOST_KEPT = 100_000  # texts whose meaning is remembered


class RangeMeanings:
    def __init__(self, database: Database, names: Codes[str], texts: Codes[str]) -> None:
        self._database = database
        self._names, self._texts = names, texts
        self._known: dict[bytes, tuple[int, int, int, int]] = {}

    def of(self, texts: Texts, index: I8, registered: I8) -> npt.NDArray[np.int32]:
        """Of each range: code of its name, whether it is an operator, code of the shapes, sequence number. Its text is
        `texts.distinct[index]`, or the registered one if `index` is -1.
        """
        used = np.unique(index)
        of_text = np.empty((len(texts.distinct) + 1, 4), np.int32)  # the last row: no text
        for place in used.tolist():
            of_text[place] = self._codes_of(texts.distinct[place] if place >= 0 else _NO_NAME.encode())
        found = of_text[index]
        rows = np.flatnonzero((index < 0) & (registered >= 0))
        ids, place = np.unique(registered[rows], return_inverse=True)
        strings = self._database.strings(ids.tolist())
        if len(rows):
            of_id = [self._codes_of(strings.get(key, _NO_NAME).encode()) for key in ids.tolist()]
            found[rows] = np.array(of_id, np.int32)[place.reshape(-1)]
        return found

    def _codes_of(self, text: bytes) -> tuple[int, int, int, int]:
        codes = self._known.get(text)
        if codes is None:
            codes = self._new(decoded(text))
            if len(self._known) < _MOST_KEPT:
                self._known[text] = codes
        return codes

    def _new(self, text: str) -> tuple[int, int, int, int]:
        one: Range = read_range(text)
        dims = self._texts.of(one.dims) if one.dims else -1
        return self._names.of(one.name), int(one.is_operator), dims, one.sequence
