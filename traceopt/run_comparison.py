"""`traceopt.compare()`: compares two sides of a change, and analyzes the traces among their runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from traceopt.analysis import ComparedRuns
from traceopt.comparison.compare import compare_runs
from traceopt.comparison.gates import Gate
from traceopt.comparison.runs import RunInput, RunOfSide, read_runs
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
) -> ComparedRuns:
    """Compares the runs of two sides, given as results or as paths of traces, folders, result documents or reports.

    A sequence is several runs of one side, and a glob is one run per match. Only several runs show how much runs of the
    same code differ. With `in_turn`, runs are compared in pairs: the first of `base` was recorded next to the first of
    `head`, and so on. `fail_on` and `warn_on` are gates, as in `traceopt compare --fail-on`.

    Raises InputError if an input cannot be read, ConfigError for a gate that does not exist.
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
    return ComparedRuns.of(compare_runs(sides[0], sides[1], gates, in_turn=in_turn))


def runs_of(given: Sequence[RunInput], **options: Any) -> list[RunOfSide]:
    """The runs of one side. `options` are for the analysis of traces. Raises InputError if an input cannot be read."""

    def analyze(path: str) -> Result:
        from traceopt.api import analyze as run_analysis  # not needed for result documents

        return run_analysis(path, **options)

    return read_runs(given, analyze)


def _sequence(side: RunInput | Sequence[RunInput]) -> Sequence[RunInput]:
    return [side] if isinstance(side, (str, os.PathLike, Result)) else side
