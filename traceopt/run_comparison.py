"""Compares two sides of a change: `traceopt.compare()`, which analyzes the traces among the runs it is given."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from traceopt.comparison.compare import compare_runs
from traceopt.comparison.gates import Gate
from traceopt.comparison.runs import RunInput, RunOfSide, read_runs
from traceopt.result.comparison import Comparison
from traceopt.result.document import Result
from traceopt.workers.progress_line import ShowProgress


def compare(
    base: RunInput | Sequence[RunInput],
    head: RunInput | Sequence[RunInput],
    *,
    in_turn: bool = False,
    fail_on: Sequence[str] = (),
    warn_on: Sequence[str] = (),
    rules_dir: str | Path | None = None,
    thresholds: Mapping[str, Mapping[str, Any]] | None = None,
    devices: Mapping[str, Mapping[str, Any]] | None = None,
    debug: bool = False,
    progress: ShowProgress | None = None,
) -> Comparison:
    """Compares runs of two sides: results, or paths of traces, folders, result documents and reports.

    A sequence is several runs of a side, and a glob is a run for each match; only several runs tell by how much runs of
    the same code differ. `in_turn`: the first of `base` was recorded beside the first of `head`, and so on; pairs are
    compared then. `fail_on` and `warn_on` are gates, as `traceopt compare --fail-on` has them.

    Raises InputError for what cannot be read, ConfigError for a gate that does not exist.
    """
    gates = [*(Gate.parse(text, "fail") for text in fail_on), *(Gate.parse(text, "warn") for text in warn_on)]
    options = {
        "rules_dir": rules_dir,
        "thresholds": thresholds,
        "devices": devices,
        "debug": debug,
        "progress": progress,
    }
    sides = [runs_of(_sequence(side), **options) for side in (base, head)]
    return compare_runs(sides[0], sides[1], gates, in_turn=in_turn)


def runs_of(given: Sequence[RunInput], **options: Any) -> list[RunOfSide]:
    """The runs of a side; `options` are for the analysis of traces. Raises InputError."""

    def analyze(path: str) -> Result:
        from traceopt.api import analyze as run_analysis  # result documents need none of it

        return run_analysis(path, **options)

    return read_runs(given, analyze)


def _sequence(side: RunInput | Sequence[RunInput]) -> Sequence[RunInput]:
    return [side] if isinstance(side, (str, os.PathLike, Result)) else side
