"""Generated runs of several ranks, and what the rules that compare them say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median

from fixtures.generate import GeneratedTrace
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.result.document import Check, Result
from traceopt.result.finding import Finding

Run = tuple[list[GeneratedTrace], Result]
GetRun = Callable[..., Run]


def of_code(result: Result, code: str) -> list[Finding]:
    return [finding for finding in result.findings if finding.code == code]


def check_of(result: Result, code: str) -> Check:
    (check,) = [check for check in result.checks if check.code == code]
    return check


def cost_us(traces: list[GeneratedTrace]) -> float:
    planted = traces[0].planted
    return median(planted.step_us) - median(planted.fixed_step_us)


def facts_of_rank(trace: GeneratedTrace, folder: Path) -> Facts:
    path = trace.write(folder / "trace.json")
    with path.open("rb") as stream:
        return Facts(read_trace(stream, path.name))
