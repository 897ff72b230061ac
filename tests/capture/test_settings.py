"""From a script to the advice: what `traceopt run` records about a run reaches the findings."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from runs import Run

from traceopt.api import analyze
from traceopt.result.document import Result
from traceopt.result.finding import Finding

KINDS = ("no_workers", "restarts", "no_restarts", "debugging", "collector", "contention")
ALL = pytest.mark.run("settings.py", *KINDS)


def result_of(run: Run, kind: str) -> Result:
    assert run.code == 0, run.stderr
    return analyze([str(trace.path) for trace in run.traces_of(kind).values()], debug=True)


def the(result: Result, code: str) -> Finding:
    found = [finding for finding in result.findings if finding.code == code]
    assert found, [check.reason for check in result.checks if check.code == code]
    return found[0]


def reason(result: Result, code: str) -> str:
    return next(check.reason for check in result.checks if check.code == code)


@ALL
def test_the_number_of_workers_follows_from_what_was_measured(run: Run) -> None:
    fix = the(result_of(run, "no_workers"), "DL001").fix
    cores = len(os.sched_getaffinity(0))
    times = r"building a batch takes \d+\.\d ms, and without the wait the step takes \d+(\.\d)? (ms|µs)\. \d+ workers "
    assert re.match(rf"With num_workers=0 and {cores} cores?, {times}", fix.text)
    assert re.search(r"Of the build time, \S+ is computing, .*the rest is waiting for data\. ", fix.text)
    assert "read from faster storage" in fix.text
    assert re.fullmatch(
        r"DataLoader\(\.\.\., num_workers=\d+, persistent_workers=True, prefetch_factor=4\)", str(fix.code)
    )


@ALL
def test_restarts_of_workers_are_counted(run: Run) -> None:
    found = the(result_of(run, "restarts"), "DL006")
    assert "restarted 4 times, about once every 8 steps" in found.why
    assert found.saving is not None
    assert 0 < found.saving.low_us <= found.saving.est_us
    assert "settings.py" in str(found.locations[0])


@ALL
def test_workers_that_persist_start_once(run: Run) -> None:
    result = result_of(run, "no_restarts")
    assert reason(result, "DL006") == "The workers were started only once."


@ALL
def test_anomaly_detection_is_found(run: Run) -> None:
    found = the(result_of(run, "debugging"), "LG004")
    assert found.why.startswith("Anomaly detection is on")
    assert found.saving is not None
    source = (Path(__file__).parent / "scripts" / "settings.py").read_text().splitlines()
    assert "set_detect_anomaly(True)" in source[(found.locations[0].line or 0) - 1]


@ALL
def test_without_debugging_modes_none_is_found(run: Run) -> None:
    assert "no debugging switch was recorded as set" in reason(result_of(run, "no_workers"), "LG004")


@ALL
def test_collections_are_found_with_the_line_that_makes_them(run: Run) -> None:
    found = the(result_of(run, "collector"), "PY001")
    assert found.confidence == "high"
    assert re.search(r"\d+ collections, 39 of them full", found.why)
    assert "calls gc.collect() itself" in found.fix.text
    source = (Path(__file__).parent / "scripts" / "settings.py").read_text().splitlines()
    place = found.locations[0]
    assert place.line is not None
    assert "gc.collect()" in source[place.line - 1]


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="this system does not count waits")
@ALL
def test_more_threads_than_cores_are_found(run: Run) -> None:
    found = the(result_of(run, "contention"), "PY002")
    assert "4 threads (4 for operators and 0 workers) on 1 core." in found.why
    assert found.fix.code == "export OMP_NUM_THREADS=1"
    assert found.saving is not None


@ALL
def test_the_overhead_is_said_by_the_analysis_alone(run: Run) -> None:
    """It knows how many pages of memory the profiler spared later steps, so any other number would contradict it."""
    assert "Recorded steps" not in run.stderr
    result = result_of(run, "no_workers")
    told = next((note.text for note in result.quality.notes if note.code == "TQ006"), reason(result, "TQ006"))
    assert re.match(r"Recorded steps took (only )?[\d.]+ ", told)
