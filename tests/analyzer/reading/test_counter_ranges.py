"""Ranges of CUPTI's range profiler: their values are kept, and their invented times are not."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import traceopt
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.tables.counter_ranges import MOST_PAIRS, CounterRanges, RangeTotals
from traceopt.analyzer.tables.trace import Trace
from traceopt.reports.html.page import render_html

READ, RATE = "dram__bytes_read.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed"


def counted(kernel: Any, ts: float = 0.0, **metrics: Any) -> dict[str, Any]:
    names = {"read": READ, "rate": RATE}
    args = {names.get(name, name): value for name, value in metrics.items()}
    return {
        "ph": "X",
        "cat": "cuda_profiler_range",
        "name": kernel,
        "pid": 0,
        "tid": 0,
        "ts": ts,
        "dur": 7,
        "args": args,
    }


def called(name: str = "aten::mm", category: str = "cpu_op") -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": 5.0, "dur": 50.0}


def content(*events: Any) -> bytes:
    return json.dumps({"schemaVersion": 1, "traceEvents": [called(), *events]}).encode()


def trace_of(*events: Any) -> Trace:
    return read_trace(io.BytesIO(content(*events)), "trace.json")


META = {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}}


@pytest.mark.parametrize("other", [None, META, called(category="something else")], ids=["alone", "meta", "unknown"])
def test_values_of_a_kernel_are_added_up(other: dict[str, Any] | None) -> None:
    """Also in a chunk with events that the fast decoder does not know."""
    events = [
        counted("gemm", 0, read=100, rate=50.0),
        counted("gemm", 7, read=300, rate=70.0),
        counted("add", 14, read=5),
    ]
    trace = trace_of(*events, *([other] if other else []))
    assert sorted(trace.counter_ranges, key=lambda one: (one.metric, one.kernel)) == [
        CounterRanges("add", READ, 1, 5.0),
        CounterRanges("gemm", READ, 2, 400.0),
        CounterRanges("gemm", RATE, 2, 120.0),
    ]
    assert trace.meta.categories["cuda_profiler_range"] == 3
    assert trace.duration_ns == 50_000, "the times of ranges do not count"


def test_odd_ranges_are_ignored() -> None:
    odd = [
        counted("k", read="many"),
        counted("k", read=-1),
        counted("k", read=True),
        counted("k", read=10**400),
        counted(None, read=1),
        counted("k") | {"args": [1]},
        counted("k") | {"args": None},
        counted("k" * 100_000, read=2),
    ]
    (one,) = trace_of(*odd).counter_ranges
    assert (len(one.kernel), one.total) == (1_000, 2.0)


def test_names_are_limited() -> None:
    totals = RangeTotals()
    for index in range(MOST_PAIRS + 10):
        totals.add(f"kernel {index}", {READ: 1})
    totals.add("kernel 0", {READ: 1})
    found = totals.finish()
    assert len(found) == MOST_PAIRS
    assert found[0] == CounterRanges("kernel 0", READ, 2, 2.0)


def test_parts_of_a_file_are_joined() -> None:
    totals = RangeTotals()
    totals.add("gemm", {READ: 100})
    totals.merge((CounterRanges("gemm", READ, 2, 50.0), CounterRanges("add", READ, 1, 1.0)))
    assert totals.finish() == (CounterRanges("gemm", READ, 3, 150.0), CounterRanges("add", READ, 1, 1.0))


def test_the_report_shows_the_values_and_says_that_times_are_invented(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_bytes(content(counted("gemm", read=1_000, rate=50.0), counted("<script>", read=0)))
    result = traceopt.analyze(str(file))
    assert [(row.kernel, row.metric, row.mean, row.total) for row in result.counter_ranges] == [
        ("gemm", READ, 1_000.0, 1_000.0),
        ("gemm", RATE, 50.0, None),
    ]
    (note,) = [one for one in result.quality.notes if one.code == "TQ001"]
    assert "No duration in this file is real, but its counts are." in note.text
    html = render_html(result)
    assert 'id="counters"' in html
    assert "so their times are not shown" in html
    file.write_bytes(content(called()))
    assert 'id="counters"' not in render_html(traceopt.analyze(str(file)))
