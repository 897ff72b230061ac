"""The real traces of other people's jobs: what an expert saw in them is found, measured right, and nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from fixtures.real_traces import SCORE, TRACES, expected
from traceopt.api import analyze
from traceopt.errors import InputError
from traceopt.reports.html.page import render_html
from traceopt.result.document import Result

if TYPE_CHECKING:
    from conftest import Chromium

pytestmark = pytest.mark.real_traces


def _kinds(name: str) -> Any:
    """A table of the scoring script, which is the one place that says which rule finds what."""
    module = ast.parse(SCORE.read_text())
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            return ast.literal_eval(node.value)
    raise AssertionError(f"score.py has no {name}")


TRUTH = expected()
EMPTY_MARK = "hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz"  # counts as a step in the reference
# The reference begins the first step at its mark, while the device still works on the step before.
LATE_START = {
    "tracelens/mi300/Qwen_Qwen1.5-0.5B-Chat/1016005.json.gz",
    "tracelens/mi300/resnet_act_checkpoint.json.gz",
}
READABLE = [file for file, truth in TRUTH.items() if all(p["kind"] != "not_a_trace" for p in truth["present"])]
REJECTED = [file for file in TRUTH if file not in READABLE]


@cache
def result_of(file: str) -> Result:
    return analyze(str(TRACES / file), debug=True)


def find(part: str) -> Result:
    (file,) = [file for file in READABLE if part in file]
    return result_of(file)


def loud(result: Result) -> list[str]:
    return [f.code for f in result.findings if f.impact in ("high", "medium")]


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
        medians = [figures.get(name) for name in ("step_median_us", "completion_step_median_us")]
        if figures.get("steps") and result.step.median_us and file not in {EMPTY_MARK, *LATE_START}:
            self.step_errors[file] = min(abs(result.step.median_us / us - 1) for us in medians if us)
        busy = [(figures.get("gpu_busy_in_window_us"), figures.get("window_us"))]
        busy.append((figures.get("completion_busy_us"), figures.get("completion_window_us")))
        all_typical = len(result.step.typical_steps) == result.step.count
        if result.gpu.busy_share is not None and all_typical and file not in LATE_START:
            shares = [part / whole for part, whole in busy if part and whole]
            self.busy_errors[file] = min(abs(result.gpu.busy_share - share) for share in shares)


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
    assert len(score.busy_errors) >= 19
    assert median(score.busy_errors.values()) <= 0.005
    assert {file: error for file, error in score.busy_errors.items() if error > 0.02} == {}


@pytest.mark.parametrize("file", REJECTED)
def test_what_is_no_trace_is_refused(file: str) -> None:
    with pytest.raises(InputError, match="is not a PyTorch profiler trace"):
        analyze(str(TRACES / file))


@pytest.mark.parametrize("file", READABLE)
class TestEveryTrace:
    def test_the_parts_sum_to_the_step(self, file: str) -> None:
        result = result_of(file)
        parts = result.breakdown
        step_us = result.step.typical_us
        assert sum(part.us_per_step for part in parts) == pytest.approx(step_us, abs=0.001 * (len(parts) + 1))
        assert sum(part.share for part in parts) == pytest.approx(1, abs=1e-5)
        if result.gpu.busy_share is not None:
            assert sum(part.share for part in parts if part.busy) == pytest.approx(result.gpu.busy_share, abs=1e-5)
            idle = sum(cause.share for cause in result.gpu.idle_by_cause)
            assert idle == pytest.approx(result.gpu.idle_share, abs=1e-5)

    def test_savings_are_bounded(self, file: str) -> None:
        result = result_of(file)
        step = result.step.typical_us
        for finding in result.findings:
            if finding.saving is not None:
                saving = finding.saving
                assert step
                assert 0 <= saving.low_us <= saving.est_us <= saving.high_us <= step
        if result.combined is not None:
            assert 0 < result.combined.saving_us < (step or 0)

    def test_every_rule_answers(self, file: str) -> None:
        for check in result_of(file).checks:
            assert check.status != "error"
            assert check.reason.endswith((".", "?")), f"{check.code}: {check.reason}"
            assert not re.search(r"\b(?:nan|inf|None)\b", check.reason), f"{check.code}: {check.reason}"

    def test_an_unusable_trace_gets_no_advice(self, file: str) -> None:
        result = result_of(file)
        if result.quality.verdict == "unusable":
            assert loud(result) == []
            assert result.combined is None

    def test_places_are_the_users(self, file: str) -> None:
        for finding in result_of(file).findings:
            for location in finding.locations:
                assert not re.search(r"site-packages|(?:^|/)torch/|^<built-in", location.file), location

    def test_json_round_trip(self, file: str) -> None:
        result = result_of(file)
        assert Result.from_json(result.to_json()) == result


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
        assert result.step.median_us
        assert result.sync.us_per_step > 0.10 * result.step.median_us
        assert [f.code for f in result.findings if f.code.startswith("HS")] == []


def test_every_page_is_quiet_in_chromium(chromium: Chromium, tmp_path: Path) -> None:
    """No request, no console line, no error, nothing wider than the screen, on each of the traces' reports."""
    complaints: dict[str, list[str]] = {}
    open_all: Callable[[str], str] = "document.querySelectorAll('{}').forEach(d => d.open = true)".format
    page = tmp_path / "report.html"
    for file in READABLE:
        page.write_text(render_html(result_of(file), static=True), encoding="utf-8")
        visit = chromium.visit(page, open_all("details"), "document.documentElement.scrollWidth - innerWidth")
        if visit.complaints or visit.value > 0:
            complaints[file] = [*visit.complaints, f"{visit.value} px too wide"]
    assert complaints == {}
