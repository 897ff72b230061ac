"""Columns that several tables have."""

from __future__ import annotations

from traceopt.result.tables.columns import Column

MS = Column("us_per_step", "ms{per_step}", "ms")
CALLS = Column("calls_per_step", "Calls", "count")
CALLER = Column("location", "Called from", "place")
EXPOSED = Column("exposed_us_per_step", "Exposed ms", "ms", about="Exposed: not overlapped by compute.")
MS_WITH_BAR = Column("us_per_step", "ms{per_step}", "ms", bar=True)
MOVED = Column("bytes_per_step", "MB{per_step}", "MB")
