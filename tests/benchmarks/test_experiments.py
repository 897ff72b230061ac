"""The comparison of predictions without and with experiments."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.savings import experiments
from benchmarks.savings.experiments import Compared, summary, with_experiments
from traceopt.result.experiments import Compared as Answer
from traceopt.result.experiments import MeasuringDevice, Rates

TRACES = Path(__file__).resolve().parents[2] / "fixtures" / "traces"


def test_errors_are_shares_of_the_measured_gain() -> None:
    pairs = [
        Compared("attention", "AT001", 2, 100.0, 80.0, 10.0, 19.0, in_range=True, disturbed=1, rounds=3),
        Compared("loader", "DL001", 0, 100.0, 50.0, 55.0, 55.0, in_range=False, disturbed=0, rounds=2),
        Compared("lost", "none", 0, 100.0, 50.0, None, None, in_range=False, disturbed=0, rounds=2),
    ]
    assert pairs[0].row == "| attention | AT001 | 100.0 | 80.0 | 2 | -50% | -5% | yes | 1 of 3 |"
    assert pairs[2].row.count("–") == 2
    text = summary(pairs)
    assert "without experiments: median error of the gain 30%, largest 50%" in text
    assert "with experiments: median error of the gain 8%, largest 10%" in text
    assert "1 of 3 measured gains in the range" in text


def test_the_second_analysis_has_the_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shutil.copytree(TRACES / "h100" / "fp32_matmul" / "plain", tmp_path / "logs")

    def measured(result: experiments.Result, _: float, *, again: bool) -> Rates:
        assert again, "not from an earlier run"
        asked = experiments.comparisons_of(result)
        return Rates(
            MeasuringDevice("NVIDIA H100 80GB HBM3", "2.13"), tuple(Answer(one, 3e6, 1e6, 0.0) for one in asked)
        )

    monkeypatch.setattr(experiments, "measured", measured)
    results = with_experiments(sorted(map(str, folder.iterdir())))
    basis, other = (
        next(one.saving.basis for one in result.findings if one.code == "TC001" and one.saving) for result in results
    )
    assert "Measured on this device" in other
    assert "Measured on this device" not in basis
