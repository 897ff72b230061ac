"""What holds for every rule of the catalogue, on every generated trace and on traces that lack what it needs."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.traces import GENERATED, REAL, TWINS, AnalyzedTrace, GetExample, over

from fixtures.generate import generate
from traceopt.analyzer.requirements import lacks
from traceopt.api import analyze
from traceopt.result.document import Check, Result
from traceopt.result.finding import Finding, impact_of_share
from traceopt.result.words.effort_and_risk import Risk
from traceopt.rules.registry import TRACE_QUALITY, builtin_rules
from traceopt.rules.rule import Rule
from traceopt.testing import events as build

RULES = list(builtin_rules())
LONGEST_PARAGRAPH = 1000  # characters: 13 lines of a terminal
PARTS = ("How to fix", "When it is wrong", "Sources")

every_rule = pytest.mark.parametrize("rule", RULES, ids=[rule.code for rule in RULES])


def faults_of_page(rule: type[Rule]) -> Iterator[str]:
    """What a page lacks."""
    page, advice = rule.page(), rule.family != TRACE_QUALITY
    parts = ["Why it costs" if advice else "Why it matters", *PARTS]
    heads = re.findall(rf"^({'|'.join(parts)})\b[^\n]*:", page, re.M)
    if heads != parts:
        yield f"its parts are {heads}"
    if advice and not page.startswith(("Measures ", "Compares ")):
        yield "it does not begin with what is measured"
    if advice and not re.search(r"^    \S", page, re.M):
        yield "it shows no code"
    prose = [block for block in page.split("\n\n") if not block.startswith(("    ", "- ", "|"))]
    if any(len(block) > LONGEST_PARAGRAPH for block in prose):
        yield "a paragraph fills a screen"
    if rule.risk is Risk.OTHER and not rule.risk_note:
        yield "its risk has no name"
    yield from (f"{one.name}: is not explained" for one in rule.thresholds() if len(one.text.split()) < 3)


def faults_of_title(title: str) -> Iterator[str]:
    first = title.split()[0]
    if not first[0].isupper() or title.endswith((".", "!")) or len(title) > 70:
        yield f"no short instruction: {title}"
    if first.endswith(("ing", "ed")):
        yield f"imperative expected: {title}"


def faults_of_tests(rule: type[Rule]) -> Iterator[str]:
    """The file that is named after its code has a test that fires and one that is silent."""
    tests = (Path(__file__).parent / f"test_{rule.code.lower()}.py").read_text(encoding="utf-8")
    names = re.findall(r"def (test_\w+)", tests)
    if f'(PlantedFault):\n    code = "{rule.code}"' not in tests:
        yield from (f"no test of it {word}" for word in ("fires", "silent") if not any(word in name for name in names))


@every_rule
def test_page_title_and_tests(rule: type[Rule]) -> None:
    assert [*faults_of_page(rule), *faults_of_title(rule.title), *faults_of_tests(rule)] == []


def test_rules_ask_only_for_what_facts_know(example: GetExample) -> None:
    for requirement in {requirement for rule in RULES for requirement in rule.requires}:
        lacks(example("healthy").facts, requirement)  # KeyError for one that does not exist


def test_no_file_is_of_a_rule_that_is_gone() -> None:
    files = {path.stem for path in Path(__file__).parent.glob("test_[a-z][a-z][0-9][0-9][0-9].py")}
    assert files == {f"test_{rule.code.lower()}" for rule in RULES}


def assert_findings(result: Result) -> None:
    """The impact follows from the saving alone, or from what the fix saves after others."""
    sampled = result.quality.sampled_share is not None or result.quality.record_again
    assert result.step.typical_us
    steps = {row.rank: row.step_us for row in result.ranks}
    after_others = {row.finding for row in result.plan if row.saving_us > row.alone_us}
    for finding in result.findings:
        basis = finding.saving.basis if finding.saving is not None else ""
        unlocked = "once the other limits of the step are gone" in basis or finding.id in after_others
        step_us = result.step.typical_us
        own_us = steps[min(finding.ranks)] if finding.ranks else step_us
        if (
            own_us
            and finding.saving is not None
            and finding.saving.share != pytest.approx(finding.saving.est_us / step_us, abs=1e-5)
        ):
            step_us = own_us  # of a finding that only other ranks have
        assert_finding(finding, step_us, unlocked=unlocked, sampled=sampled)


def assert_finding(finding: Finding, step_us: float, *, unlocked: bool, sampled: bool) -> None:
    """`sampled`: the evidence shows an impact, but not how much time it is in a steady step."""
    assert finding.why.strip()
    assert re.search(r"\d", finding.why), f"no measured number: {finding.why}"
    assert finding.why.endswith((".", "?"))
    assert finding.fix.text.strip()
    assert finding.evidence, "no evidence"
    assert all(row.what for row in finding.evidence)
    assert all((row.us_per_step or 0) >= 0 and (row.calls_per_step or 0) >= 0 for row in finding.evidence)
    assert len(set(map(str, finding.locations))) == len(finding.locations), "the same place twice"
    saving = finding.saving
    if saving is None:
        assert finding.impact in (("info", "low", "medium") if sampled else ("info",))
        return
    assert 0 <= saving.low_us <= saving.est_us <= saving.high_us <= step_us
    assert saving.share == pytest.approx(saving.est_us / step_us, abs=1e-5)
    assert saving.basis.strip()
    alone = ("low", "medium", "high").index(impact_of_share(saving.share))
    stated = ("low", "medium", "high").index(finding.impact)
    assert alone == stated or (alone < stated and unlocked)


@over(GENERATED, TWINS, REAL)
class TestResult:
    def test_findings_are_sound(self, trace: AnalyzedTrace) -> None:
        assert_findings(trace.result)

    def test_every_rule_answers(self, trace: AnalyzedTrace) -> None:
        """With a sentence; rules that raise fail the test, because examples are analyzed with debug=True."""
        result = trace.result
        assert sorted(check.code for check in result.checks) == [rule.code for rule in RULES]
        assert [check for check in result.checks if check.status == "error"] == []
        for check in result.checks:
            assert_sentence(check)
        found = {f.code for f in result.findings} | {note.code for note in result.quality.notes}
        assert {check.code for check in result.checks if check.status == "found"} == found

    def test_findings_are_ranked(self, trace: AnalyzedTrace) -> None:
        """Those of the plan in its order, then the others by their impact."""
        order = {"high": 0, "medium": 1, "low": 2, "info": 3}
        result = trace.result
        assert [row.finding for row in result.plan] == [one.id for one in result.findings[: len(result.plan)]]
        others = result.findings[len(result.plan) :]
        keys = [(order[f.impact], -(f.saving.est_us if f.saving else 0.0)) for f in others]
        assert keys == sorted(keys)


@over(GENERATED, REAL)
def test_json_round_trip(trace: AnalyzedTrace) -> None:
    result = trace.result
    again = Result.from_json(result.to_json())
    assert again.to_json() == result.to_json()
    assert again == result


def assert_sentence(check: Check) -> None:
    assert check.reason.strip(), check.code
    assert check.reason.endswith((".", "?")), f"{check.code}: {check.reason}"
    assert not re.search(r"\b(?:nan|inf|None)\b", check.reason), f"{check.code}: {check.reason}"


# Traces that lack something.

Keep = Callable[[dict[str, Any]], bool]
CATEGORIES: dict[str, Keep] = {
    "kernels": lambda event: event.get("cat") != "kernel",
    "copies": lambda event: event.get("cat") not in ("gpu_memcpy", "gpu_memset"),
    "gpu": lambda event: event.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset"),
    "runtime": lambda event: event.get("cat") not in ("cuda_runtime", "cuda_driver"),
    "ops": lambda event: event.get("cat") != "cpu_op",
    "annotations": lambda event: event.get("cat") != "user_annotation",
    "python": lambda event: event.get("cat") != "python_function",
    "memory": lambda event: event.get("name") != "[memory]",
    "flows": lambda event: event.get("cat") not in ("ac2g", "fwdbwd"),
    "everything but the GPU": lambda event: event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"),
}
SUBJECTS = {"five_faults": {"steps": 3, "layers": 1}, "exposed_allreduce": {"steps": 3, "layers": 1}}


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Result]:
    """`without(scenario, what)`: the result of a trace with a kind of events dropped; rules that raise fail."""
    folder = tmp_path_factory.mktemp("without")
    whole = {scenario: generate(scenario, **size) for scenario, size in SUBJECTS.items()}
    known: dict[tuple[str, str], Result] = {}

    def get(scenario: str, what: str) -> Result:
        if (scenario, what) not in known:
            trace = whole[scenario]
            kept = [event for event in trace.events if CATEGORIES[what](event)]
            part = replace(trace, document={**trace.document, "traceEvents": kept})
            path = part.write(folder / f"{scenario}-{len(known)}.json")
            known[scenario, what] = analyze(str(path), debug=True)
        return known[scenario, what]

    return get


def asked_for(requirement: str) -> set[str]:
    return {rule.code for rule in RULES if requirement in rule.requires}


def unanswered(result: Result) -> set[str]:
    return {check.code for check in result.checks if check.status in ("not_checked", "not_applicable")}


@pytest.mark.parametrize("scenario", SUBJECTS)
@pytest.mark.parametrize("what", CATEGORIES)
def test_no_rule_raises_or_invents(without: Callable[[str, str], Result], scenario: str, what: str) -> None:
    result = without(scenario, what)
    assert [check for check in result.checks if check.status == "error"] == []
    for check in result.checks:
        assert_sentence(check)
    assert_findings(result)
    assert sum(part.share for part in result.breakdown) == pytest.approx(1, abs=1e-4)
    assert Result.from_json(result.to_json()) == result


@pytest.mark.parametrize("scenario", SUBJECTS)
class TestHonesty:
    """What was not recorded is None and "not checked", never 0 and "passed"."""

    def test_no_gpu_work(self, without: Callable[[str, str], Result], scenario: str) -> None:
        result = without(scenario, "gpu")
        gpu = result.gpu
        assert (gpu.busy_us, gpu.busy_share, gpu.compute_share, gpu.idle_share) == (None,) * 4
        assert result.sync.stall_us_per_step is None
        assert result.tensor_cores.used_share is None
        assert result.efficiency.achieved_tflops is None
        assert result.kernels == result.copies == result.gemms == []
        assert not result.run.recorded.gpu
        assert asked_for("gpu") <= unanswered(result)
        assert "TQ001" in {note.code for note in result.quality.notes}
        assert result.quality.verdict == "unusable"  # launches show that a GPU was there

    def test_no_kernels(self, without: Callable[[str, str], Result], scenario: str) -> None:
        result = without(scenario, "kernels")
        assert result.tensor_cores.used_share is None
        assert result.efficiency.achieved_tflops is None
        assert result.gemms == []
        assert result.quality.verdict != "good"

    def test_no_launches(self, without: Callable[[str, str], Result], scenario: str) -> None:
        result = without(scenario, "runtime")
        assert (result.sync.calls_per_step, result.sync.stall_us_per_step) == (None, None)
        assert asked_for("launches") <= unanswered(result)
        assert result.gpu.busy_share

    def test_no_operators(self, without: Callable[[str, str], Result], scenario: str) -> None:
        result = without(scenario, "ops")
        assert result.efficiency.achieved_tflops is None
        assert result.ops == result.gemms == []
        assert not result.run.recorded.shapes
        assert asked_for("ops") | asked_for("shapes") <= unanswered(result)

    def test_no_annotations(self, without: Callable[[str, str], Result], scenario: str) -> None:
        result = without(scenario, "annotations")
        assert result.step.source in ("backward", "window")
        noted = "TQ002" in {note.code for note in result.quality.notes}
        assert noted == (result.gpu.idle_share is not None and result.gpu.idle_share >= 0.10)

    def test_no_stacks(self, without: Callable[[str, str], Result], scenario: str) -> None:
        result = without(scenario, "python")
        assert not result.run.recorded.stacks
        assert asked_for("stacks") <= unanswered(result)
        assert [f.code for f in result.findings if f.locations] == []

    def test_no_memory(self, without: Callable[[str, str], Result], scenario: str) -> None:
        result = without(scenario, "memory")
        assert (result.memory.peak_allocated_bytes, result.memory.peak_reserved_bytes) == (None, None)
        assert result.memory.curve == []
        assert not result.run.recorded.memory
        assert asked_for("memory") <= unanswered(result)

    def test_gpu_work_alone(self, without: Callable[[str, str], Result], scenario: str) -> None:
        result = without(scenario, "everything but the GPU")
        assert result.gpu.busy_share
        assert (result.sync.calls_per_step, result.dataloader.us_per_step) == (None, None)
        assert asked_for("launches") | asked_for("stacks") | asked_for("ops") <= unanswered(result)
        assert {f.code for f in result.findings if f.locations} == set()
        idle = {cause.cause for cause in result.gpu.idle_by_cause}
        assert idle <= {"untraced", "unrecorded"}, "without the host's side no cause is known"


# The smallest traces there are.


def one_kernel() -> Iterator[build.Json]:
    yield build.kernel("ampere_sgemm_128x64_tn", 10, 5, 1)


def one_operator() -> Iterator[build.Json]:
    yield build.op("aten::mm", 10, 5)


def one_empty_annotation() -> Iterator[build.Json]:
    yield build.annotation("", 10, 0)


def one_frame() -> Iterator[build.Json]:
    yield build.python("train.py(1): main", 10, 5)


def one_call() -> Iterator[build.Json]:
    yield build.runtime("cudaDeviceSynchronize", 10, 5, 1)


def one_copy() -> Iterator[build.Json]:
    yield build.span("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 10, 5, 7, device=0, stream=7, bytes=0)


def nothing_lasts() -> Iterator[build.Json]:
    yield build.annotation("ProfilerStep#1", 10, 0)
    yield build.kernel("k", 10, 0, 1)
    yield build.runtime("cudaLaunchKernel", 10, 0, 1)
    yield build.op("aten::mm", 10, 0, **{"Input Dims": [[0, 0], [0, 0]], "Input type": ["float", "float"]})


def unknown_category() -> Iterator[build.Json]:
    yield build.span("quantum_flux", "x", 10, 5)


def hostile_arguments() -> Iterator[build.Json]:
    """Values of the wrong type wherever a number, a list or a text belongs."""
    yield build.annotation("ProfilerStep#1", 0, 100)
    for dims in ("x", 5, [], [[]], [None, "a"], [[4, 4], [4, -4]], {"a": 1}, [[10**30, 2], [2, 2]]):
        yield build.op("aten::mm", 10, 5, **{"Input Dims": dims, "Input type": 7, "Sequence number": "x"})
    yield build.runtime("cudaLaunchKernel", 12, 2, "one")  # type: ignore[arg-type]
    yield build.kernel("k", 20, 5, -3, stream="default", device="x")  # type: ignore[arg-type]
    yield build.kernel("ncclDevKernel_AllReduce", 30, 5, 4, **{"In msg nelems": "many", "Group size": [], "dtype": 3})


SMALLEST = (
    one_kernel,
    one_operator,
    one_empty_annotation,
    one_frame,
    one_call,
    one_copy,
    nothing_lasts,
    unknown_category,
    hostile_arguments,
)


@pytest.mark.parametrize("events", SMALLEST, ids=lambda events: events.__name__)
def test_smallest_traces(tmp_path: Path, events: Callable[[], Iterator[build.Json]]) -> None:
    path = tmp_path / "small.json"
    path.write_bytes(build.document(list(events())))
    result = analyze(str(path), debug=True)
    for check in result.checks:
        assert check.status != "error"
        assert_sentence(check)
    assert Result.from_json(result.to_json()) == result


def test_advice_to_copy_without_blocking_says_when_the_copy_is_done() -> None:
    """Code that reads a result, or overwrites an input, while the copy still runs would train on wrong numbers."""
    files = [Path(inspect.getfile(rule)) for rule in RULES]
    calls = [one for file in files for one in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    fixes = [one for one in calls if isinstance(one, ast.Call) and getattr(one.func, "id", "") == "Fix"]
    codes = [ast.unparse(fix.args[1]) for fix in fixes if fix.args[1:]]
    copying = [code for code in codes if "non_blocking=True" in code]
    assert len(copying) >= 4
    for code in copying:
        assert any(wait in code for wait in ("synchronize()", "wait_stream", "record()")), code
