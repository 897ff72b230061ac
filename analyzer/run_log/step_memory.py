"""The memory that `traceopt run` read at the end of steps, recorded or not."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.tables.json_values import MOST_ROWS, table, whole
from traceopt.analyzer.tables.schema import I8

UNKNOWN = -1


class StepMemory(Struct, frozen=True):
    """Bytes at the end of steps, with the number of the step for each reading, in order. UNKNOWN: not read.

    `device_bytes` is what tensors on the GPU hold, `device_peak_bytes` their highest value until then, `process_bytes`
    the resident memory of the process without mapped files and shared memory.
    """

    steps: I8
    process_bytes: I8
    device_bytes: I8
    device_peak_bytes: I8

    def between(self, values: I8, first_step: int, last_step: int) -> I8:
        """The known readings of one of the columns at these steps and those between them."""
        known: I8 = values[(self.steps >= first_step) & (self.steps <= last_step) & (values != UNKNOWN)]
        return known


def read_step_memory(value: object) -> StepMemory | None:
    """Reads the key `step_memory`; None if it holds nothing that can be used."""
    document = table(value)
    steps = _column(document.get("steps"))
    if steps is None or not len(steps) or (steps < 0).any() or (np.diff(steps) <= 0).any():
        return None
    columns = [_column(document.get(name)) for name in ("process_bytes", "device_bytes", "device_peak_bytes")]
    unknown = np.full(len(steps), UNKNOWN, np.int64)
    return StepMemory(
        steps, *(unknown if column is None or len(column) != len(steps) else column for column in columns)
    )


def _column(value: object) -> I8 | None:
    if not isinstance(value, list) or len(value) > MOST_ROWS:
        return None
    known = (whole(number) for number in value)
    return np.array([UNKNOWN if number is None else number for number in known], np.int64)
