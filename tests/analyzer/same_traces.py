"""Whether two ways to read a file give the same trace."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.tables.trace import Trace


def assert_same_trace(found: Trace, expected: Trace) -> None:
    """Equal tables, dictionaries and metadata."""
    assert (found.names, found.texts, found.threads) == (expected.names, expected.texts, expected.threads)
    assert found.meta == expected.meta
    for name in ("gpu", "runtime", "ops", "annotations", "python", "sync", "memory", "flows"):
        table, wanted = getattr(found, name), getattr(expected, name)
        for column in wanted.SCHEMA:
            assert np.array_equal(getattr(table, column), getattr(wanted, column)), (name, column)
