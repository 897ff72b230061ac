"""The real traces of other people's jobs: what an expert saw in them is found, measured right, and nothing else."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import pytest
from browser_pages import OpenPage
from support.real import TRUTH, find, result_of
from support.traces import READABLE, REAL, AnalyzedTrace, over

from fixtures.real_traces import SCORE, TRACES
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.api import analyze
from traceopt.errors import InputError
from traceopt.result.document import Result

pytestmark = pytest.mark.real_traces


def _kinds(name: str) -> Any:
    """A table of the scoring script, which is the one place that says which rule finds what."""
    module = ast.parse(SCORE.read_text())
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            return ast.literal_eval(node.value)
    raise AssertionError(f"score.py has no {name}")


REJECTED = [file for file in TRUTH if file not in READABLE]


def loud(result: Result) -> list[str]:
    return [f.code for f in result.findings if f.impact in ("high", "medium")]


def knows_the_start(figures: dict[str, Any]) -> bool:
    """Whether the expert's window begins when the device had completed what was launched before: it begins with the
    host's first mark, which is later if much of the work has no launch in the file.
    """
    unlinked: float = figures.get("in_window_pct", {}).get("unlinked_gpu", 0.0)
    return unlinked < 10


def median_step_us(figures: dict[str, Any]) -> float | None:
    """From completion to completion, without a last mark in which the device did nothing; None if it is not known."""
    idle = figures.get("per_step_idle_pct", [0])
    if len(idle) > 1 and idle[-1] == 100 > max(idle[:-1]):
        return median(figures["step_us"][:-1])
    if figures.get("steps", 0) < 3 and not knows_the_start(figures):
        return None
    return figures.get("completion_step_median_us") or figures.get("step_median_us")


@cache
def measured(path: Path) -> tuple[float, int]:
    """The busy share of all steps, also of those that are left out because they are unusual, and the streams. A folder
    holds the ranks of one run. The expert's window includes the lead-in, as idle time.
    """
    path = min(path.rglob("*.json.gz"), default=path)
    with path.open("rb") as stream:
        facts = Facts(read_trace(stream, path.name)).of_every_step
    window_ns = facts.steps.window_ns + facts.earlier_work.total
    return facts.gpu.busy.total / window_ns, len(np.unique(facts.gpu.work.stream))


@dataclass
class Score:
    """As `shared/check/score.py` counts."""

    found: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    false: list[str] = field(default_factory=list)
    first_right: list[str] = field(default_factory=list)
    first_wrong: list[str] = field(default_factory=list)
    step_errors: dict[str, float] = field(default_factory=dict)
    busy_errors: dict[str, float] = field(default_factory=dict)

    def add(self, file: str, truth: dict[str, Any], result: Result, kind: Any, quality: Any) -> None:
        present = [entry for entry in truth["present"] if entry["kind"] in kind]
        expected = {entry["kind"] for entry in truth["present"]}
        tolerated = expected | {entry["kind"] for entry in truth.get("minor_or_neutral", [])}
        named = {f.name for f in result.findings if f.impact in ("high", "medium")}
        mentioned = {f.name for f in result.findings} | {n.name for n in result.quality.notes}
        mentioned |= {check.name for check in result.checks if check.status == "found"}
        for entry in present:
            need = mentioned if entry["kind"] in quality or (entry["share_of_time"] or 0) < 5 else named
            (self.found if kind[entry["kind"]] & need else self.missed).append(f"{file}: {entry['kind']}")
        for absent in truth["absent"]:
            if absent not in kind or absent in tolerated or not kind[absent] & named:
                continue
            if not any(kind[absent] & named & kind[other] for other in tolerated & kind.keys()):
                self.false.append(f"{file}: {absent}")
        ranked = [entry for entry in present if entry["kind"] not in quality and entry["share_of_time"]]
        ranked.sort(key=lambda entry: -entry["share_of_time"])
        if ranked and ranked[0]["share_of_time"] >= 10:
            first = result.findings[0].name if result.findings else None
            good = set().union(*(kind[entry["kind"]] for entry in ranked[:2]))
            (self.first_right if first in good else self.first_wrong).append(f"{file}: {first}")
        figures = truth["figures"]
        reference = median_step_us(figures)
        if reference and result.step.median_us:
            self.step_errors[file] = abs(result.step.median_us / reference - 1)
        busy_us = figures.get("completion_busy_us") or figures.get("gpu_busy_in_window_us")
        if busy_us and knows_the_start(figures) and result.gpu.busy_share is not None:
            window_us = figures.get("completion_window_us") or figures["window_us"]
            self.busy_errors[file] = abs(measured(TRACES / file)[0] - busy_us / window_us)


@pytest.fixture(scope="module")
def score() -> Score:
    total = Score()
    kind, quality = _kinds("KIND"), _kinds("QUALITY")
    for file in READABLE:
        total.add(file, TRUTH[file], result_of(file), kind, quality)
    return total


def test_there_are_many() -> None:
    assert len(READABLE) >= 26
    assert len(REJECTED) >= 2


def test_recall(score: Score) -> None:
    assert len(score.found) / (len(score.found) + len(score.missed)) >= 0.90, score.missed


def test_precision(score: Score) -> None:
    assert len(score.found) / (len(score.found) + len(score.false)) >= 0.90, score.false


def test_the_first_fix_is_right(score: Score) -> None:
    right, wrong = len(score.first_right), len(score.first_wrong)
    assert right + wrong >= 15
    assert right / (right + wrong) >= 0.85, score.first_wrong


def test_steps_are_measured_right(score: Score) -> None:
    assert len(score.step_errors) >= 15
    assert {file: error for file, error in score.step_errors.items() if error > 0.01} == {}


def test_busy_time_is_measured_right(score: Score) -> None:
    assert len(score.busy_errors) >= 20
    assert median(score.busy_errors.values()) <= 0.005
    assert {file: error for file, error in score.busy_errors.items() if error > 0.02} == {}


@pytest.mark.parametrize("file", REJECTED)
def test_what_is_no_trace_is_refused(file: str) -> None:
    with pytest.raises(InputError, match="not a PyTorch profiler trace"):
        analyze(str(TRACES / file))


@over(REAL)
class TestEveryTrace:
    def test_the_step_is_the_mean_of_the_typical_steps(self, trace: AnalyzedTrace) -> None:
        step = trace.result.step
        assert len(step.per_step_us) == step.count
        assert step.typical_steps == sorted(set(step.typical_steps))
        typical = [step.per_step_us[index] for index in step.typical_steps]
        assert step.typical_us == pytest.approx(fmean(typical), abs=0.002)

    def test_the_parts_sum_to_the_step(self, trace: AnalyzedTrace) -> None:
        result = trace.result
        step_us, parts = result.step.typical_us, result.breakdown
        assert step_us
        assert sum(part.us_per_step for part in parts) == pytest.approx(step_us, abs=0.001 * (len(parts) + 1))
        assert sum(part.share for part in parts) == pytest.approx(1, abs=1e-5)
        if result.gpu.busy_share is not None:
            assert sum(part.share for part in parts if part.busy) == pytest.approx(result.gpu.busy_share, abs=1e-5)
            idle = sum(cause.share for cause in result.gpu.idle_by_cause)
            assert idle == pytest.approx(result.gpu.idle_share, abs=1e-5)
            idle_us = {cause.cause: cause.us_per_step for cause in result.gpu.idle_by_cause}
            assert idle_us == {part.name: part.us_per_step for part in parts if not part.busy and part.us_per_step > 0}

    def test_every_section_is_about_the_same_steps(self, trace: AnalyzedTrace) -> None:
        """The window, the tables and the timeline; work on several streams at once counts more than once in tables."""
        result = trace.result
        step, parts = result.step, {part.name: part for part in result.breakdown}
        count, step_us = len(step.typical_steps), step.typical_us
        assert step_us
        assert result.timeline is not None
        shown = [us for us in step.per_step_us if us == result.timeline.duration_us]
        assert shown
        assert shown[0] in [step.per_step_us[index] for index in step.typical_steps]
        for lane in result.timeline.lanes:
            assert all(0 <= span.start_us <= result.timeline.duration_us for span in lane.spans)
        if result.gpu.window_us is None or result.gpu.busy_us is None:
            return
        rounding = 0.001 * (count + 1)
        assert result.gpu.window_us == pytest.approx(count * step_us, abs=rounding)
        busy_us = result.gpu.busy_us / count
        assert busy_us == pytest.approx(sum(part.us_per_step for part in parts.values() if part.busy), abs=0.005)
        communication = parts.get("communication")
        if communication is not None:
            assert result.communication.us_per_step == communication.raw_us_per_step
            assert result.communication.exposed_us_per_step == communication.us_per_step
            exposed = sum(row.exposed_us_per_step for row in result.communication.collectives)
            assert exposed >= communication.us_per_step - 0.001 * (1 + len(result.communication.collectives))
            assert (communication.raw_us_per_step or 0) <= busy_us + 0.002
        copies = parts.get("copies")
        for row in result.copies:
            assert copies is not None
            assert row.exposed_us_per_step <= copies.us_per_step + 0.002
        if measured(trace.path)[1] == 1:
            assert sum(row.us_per_step for row in result.kernels) <= 1.001 * busy_us + 0.001 * len(result.kernels)

    def test_an_unusable_trace_gets_no_advice(self, trace: AnalyzedTrace) -> None:
        result = trace.result
        if result.quality.verdict == "unusable":
            assert loud(result) == []
            assert result.combined is None

    def test_places_are_the_users(self, trace: AnalyzedTrace) -> None:
        for finding in trace.result.findings:
            for location in finding.locations:
                assert not re.search(r"site-packages|(?:^|/)torch/|^<built-in", location.file), location


class TestKnownJobs:
    """The acceptance lines, by name."""

    def test_resnet_with_no_workers_waits_for_its_loader(self) -> None:
        result = find("resnet50_num_workers_0")
        (finding,) = [f for f in result.findings[:2] if f.code == "DL001"]
        assert finding.saving is not None
        assert 0.30 <= finding.saving.share <= 0.38
        assert "num_workers" in f"{finding.fix.text} {finding.fix.code}"

    def test_resnet_with_workers_does_not(self) -> None:
        assert [f.code for f in find("resnet50_num_workers_4").findings if f.code == "DL001"] == []

    def test_compiled_code_has_nothing_to_fix(self) -> None:
        result = find("torch_compile_triton")
        assert loud(result) == []
        assert result.combined is None

    def test_hidden_syncs_are_no_finding(self) -> None:
        result = find("trace_diff/control")
        assert result.sync.us_per_step
        assert result.step.typical_us
        assert result.sync.us_per_step > 0.10 * result.step.typical_us
        assert [f.code for f in result.findings if f.code.startswith("HS")] == []


def test_every_page_is_quiet_in_chromium(open_report: OpenPage) -> None:
    """No request, no console line, no error, nothing wider than the screen, on each of the traces' reports."""
    too_wide: dict[str, float] = {}
    for file in READABLE:
        page = open_report(result_of(file), static=True)
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        too_wide[file] = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert {file: pixels for file, pixels in too_wide.items() if pixels > 0} == {}


def test_a_cold_start_has_no_plan_and_no_savings() -> None:
    result = find("mi250_minitoy")
    assert result.quality.record_again
    assert result.findings
    assert result.plan == []
    assert result.combined is None
    assert [one.code for one in result.findings if one.saving is not None] == []
