"""MM008 out-of-memory: make the failed allocation fit."""

from __future__ import annotations

from pathlib import Path

import traceopt
from fixtures.memory_snapshots import training
from traceopt.result.document import Check, Result


def of_snapshot(fault: str | None, folder: Path) -> tuple[Result, Check]:
    """The result of the snapshot of a training, and what MM008 says."""
    result = traceopt.analyze(str(training(fault, steps=2).write(folder / "snapshot.pickle")))
    (check,) = (one for one in result.checks if one.code == "MM008")
    return result, check


def test_fires_on_an_allocation_that_failed(tmp_path: Path) -> None:
    result, check = of_snapshot("oom", tmp_path)
    assert check.status == "found"
    (failed,) = (one for one in result.findings if one.code == "MM008")
    assert (failed.saving, failed.impact) == (None, "high")


def test_silent_where_all_memory_was_given(tmp_path: Path) -> None:
    assert of_snapshot(None, tmp_path)[1].status == "passed"
