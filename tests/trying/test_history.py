"""`tried.jsonl` and `traceopt accuracy`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from traceopt.analyzer.vocabulary.companion_kinds import TRIALS_FILE
from traceopt.cli import cli
from traceopt.result.trial import TriedChange
from traceopt.trying import history


def tried(name: str, predicted: float | None, gain_share: float) -> TriedChange:
    return TriedChange(
        name, "fix", "Change it", "patch", "keep",
        predicted_us=predicted, predicted_low_us=80.0 if predicted else None, predicted_high_us=predicted,
        before_us=1000.0, after_us=1000.0 * (1 - gain_share),
        gain_share=gain_share, low_share=gain_share - 0.01, high_share=gain_share + 0.01,
    )  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two tries: of DL001 twice, of OP001 once; a change without a prediction is not remembered."""
    path = tmp_path / TRIALS_FILE
    first = [tried("DL001", 100.0, 0.1), tried("OP001 (2)", 100.0, 0.02), tried("my.diff", None, 0.5)]
    for rows in (first, [tried("DL001", 100.0, 0.05)]):
        history.append(path, history.attempts_of(rows, time="2030-01-31T10:00:00Z", script="train.py", device="CPU"))
    return path


def test_errors_and_coverage_by_rule(file: Path) -> None:
    attempts, odd = history.read(file)
    assert (len(attempts), odd) == (3, 0)
    loader, optimizer = history.agreements(attempts)
    assert (loader.code, loader.attempts, loader.covered) == ("DL001", 2, 1)
    assert loader.median_error_share == pytest.approx(0.025)
    assert (optimizer.code, optimizer.covered) == ("OP001", 0)
    assert optimizer.median_absolute_error_share == pytest.approx(0.08)


def test_the_command(file: Path) -> None:
    with file.open("ab") as stream:
        stream.write(b'{"time": "cut o')
    found = CliRunner().invoke(cli, ["accuracy", str(file)])
    assert found.exit_code == 0
    assert "3 measurements; 1 in the predicted range" in found.stdout
    assert "1 line cannot be read" in found.stderr
    row = next(line for line in found.stdout.splitlines() if line.startswith("OP001"))
    assert row.split() == ["OP001", "1", "8.0", "predicts", "too", "much", "0", "of", "1"]


def test_without_a_file(tmp_path: Path) -> None:
    found = CliRunner().invoke(cli, ["accuracy", str(tmp_path / "missing.jsonl")])
    assert found.exit_code == 2
    assert "missing.jsonl; traceopt try writes it" in found.stderr
