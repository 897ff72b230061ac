"""The replay accuracy page shows the measurements, also without the real traces."""

from __future__ import annotations

from benchmarks.replay_accuracy import Planted, Real, page
from traceopt.analyzer.replay.replayed import ReplayError

FAULT = Planted("slow_loader", "DL001", 26.0, 17.0, 7.0, 9.9, 9.9)


def test_a_row_each_and_the_medians() -> None:
    real = [
        Real("control", 6, 10_000, 192, ReplayError(0.005, 0.008), 250.0),
        Real("vllm", 0, 400, 0, ReplayError(0.0, 0.41), 1_000.0),
        Real("gpu_only", 0, 5, 0, None, 1_000.0),
    ]
    text = page(real, [FAULT])
    assert "| control | 6 | 10,000 | 192 | 0.50% | 0.80% |" in text
    assert "| gpu_only | no marks | 5 | 0 | nothing to replay | |" in text
    assert "Of 1 traces with steps, 1 are missed by 2% or less" in text
    assert "One pass takes 25 ms per 100,000 rows" in text
    assert "| slow_loader | DL001 | 26.00 | 17.00 | 9.00 | 7.00 | 9.90 | 9.90 | +10.0% |" in text
    assert "Median error 10.0% over 1 faults." in text


def test_without_the_real_traces() -> None:
    assert "The real traces were not available." in page([], [FAULT])
