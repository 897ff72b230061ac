"""What `traceopt run` records beside the events is read where it is there, and nothing is taken from odd values."""

from __future__ import annotations

import pytest

from traceopt.analyzer.captured import Captured, LoaderSettings, captured


def test_settings_are_read() -> None:
    header = {
        "traceopt": {
            "environment": {"cpu_count": 64, "cpu_affinity": 16},
            "loaders": [{"num_workers": 4, "pin_memory": True, "batch_size": 32, "prefetch_factor": None}],
        }
    }
    assert captured(header) == Captured(16, (LoaderSettings(4, None, True, None, 32),))


@pytest.mark.parametrize(
    "header",
    [{}, {"traceopt": None}, {"traceopt": []}, {"traceopt": {"environment": 3, "loaders": {"num_workers": 4}}}],
)
def test_odd_headers_tell_nothing(header: dict[str, object]) -> None:
    assert captured(header) == Captured(None, ())


def test_odd_values_tell_nothing() -> None:
    loaders = [{"num_workers": "4", "pin_memory": 1}, "loader"]
    assert captured({"traceopt": {"loaders": loaders}}).loaders == (LoaderSettings(None, None, None, None, None),)
