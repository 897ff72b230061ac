"""What the marker `real_traces` means, as a plugin of pytest: conftest.py has its hook."""

from __future__ import annotations

import os

import pytest

from fixtures import real_traces

_REFUSAL = f"TRACEOPT_REAL_TRACES=required, but {real_traces.ABSENT}"


def pytest_configure(config: pytest.Config) -> None:
    """Says it before processes of pytest-xdist start: of what they raise, only a closed channel is reported."""
    if getattr(config.option, "dist", "no") != "no" and not real_traces.EXPECTED.is_file() and _required():
        raise pytest.UsageError(_REFUSAL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without the real traces, the tests that need them are skipped, or nothing runs where they are required."""
    if real_traces.EXPECTED.is_file():
        return
    waiting = [item for item in items if item.get_closest_marker("real_traces")]
    if waiting and _required():
        raise pytest.UsageError(_REFUSAL)
    for item in waiting:
        item.add_marker(pytest.mark.skip(reason=real_traces.ABSENT), append=False)


def _required() -> bool:
    return os.environ.get("TRACEOPT_REAL_TRACES") == "required"
