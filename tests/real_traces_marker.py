"""What the marker `real_traces` means, as a plugin of pytest: conftest.py has its hook."""

from __future__ import annotations

import os

import pytest

from fixtures import real_traces


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without the real traces, the tests that need them are skipped, or nothing runs where they are required."""
    if real_traces.EXPECTED.is_file():
        return
    waiting = [item for item in items if item.get_closest_marker("real_traces")]
    if waiting and os.environ.get("TRACEOPT_REAL_TRACES") == "required":
        raise pytest.UsageError(f"TRACEOPT_REAL_TRACES=required, but {real_traces.ABSENT}")
    for item in waiting:
        item.add_marker(pytest.mark.skip(reason=real_traces.ABSENT), append=False)
