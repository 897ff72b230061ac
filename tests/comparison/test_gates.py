"""Gates: how they are written, when they fail, and that unmeasured metrics never pass."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from sample import cpu_only, empty, rich, unusable

from traceopt.comparison.compare import compare_runs
from traceopt.comparison.gates import Gate, judge
from traceopt.errors import ConfigError
from traceopt.result.comparison import GateOutcome
from traceopt.result.document import Quality, Result
from traceopt.result.sections.step import Memory, Step, Throughput
from traceopt.run_comparison import runs_of

GIB = 1 << 30
STEADY = [99_000.0, 100_000.0, 101_000.0, 100_000.0]


def stepping(us: float, steps: list[float] = STEADY, base: Result | None = None) -> Result:
    per_step = [step * us / 100_000 for step in steps]
    step = Step("profiler_step", len(steps), 0, us, list(range(len(steps))), us, None, None, per_step)
    return replace(base or rich(), step=step)


def level(text: str, *head: Result) -> GateOutcome:
    return judge(Gate.parse(text, "fail"), list(head), None)


def against(text: str, base: list[Result], head: list[Result]) -> GateOutcome:
    (outcome,) = compare_runs(runs_of(base), runs_of(head), [Gate.parse(text, "fail")]).gates
    return outcome


@pytest.mark.parametrize(
    ("text", "status", "text_of_gate"),
    [
        ("gpu_idle=40%", "failed", "gpu_idle is 61%, the limit is 40%"),
        ("gpu_idle=0.7", "passed", "gpu_idle is 61%, the limit is 70%"),
        ("data_stall=0.4", "failed", "data_stall is 45%, the limit is 40%"),
        ("exposed_communication=10%", "passed", "exposed_communication is 5.3%, the limit is 10%"),
        ("step_time=400ms", "failed", "step_time is 412.0 ms, the limit is 400.0 ms"),
        ("step_time=0.5s", "passed", "step_time is 412.0 ms, the limit is 500.0 ms"),
        ("peak_memory=20GiB", "failed", "peak_memory is 23.4 GiB, the limit is 20.0 GiB"),
        ("mfu=2%", "passed", "mfu is 3.1%, the limit is 2.0%"),
        ("mfu=40%", "failed", "mfu is 3.1%, the limit is 40%"),
        ("high", "failed", "findings of high impact: DL001, TC002"),
        ("finding=low", "failed", "findings of low impact or above: DL001, TC002, HS002, DL003, CM004"),
    ],
)
def test_limits(text: str, status: str, text_of_gate: str) -> None:
    outcome = level(text, rich())
    assert (outcome.status, outcome.text, outcome.gate) == (status, text_of_gate, text)


def of_peak(mfu: float, tflops: float, source: str, verified: bool | None) -> Result:
    known = replace(rich().efficiency, mfu=mfu, peak_tflops=tflops, peak_source=source, peak_verified=verified)
    return replace(rich(), efficiency=known)


def test_a_limit_says_where_the_peak_comes_from() -> None:
    sheet, unread = of_peak(0.3, 989.0, "a sheet", True), of_peak(0.3, 989.0, "a sheet", False)
    given, other = of_peak(0.3, 989.0, "your settings", None), of_peak(0.6, 494.0, "your settings", None)
    assert level("mfu=20%", sheet).text == "mfu is 30%, the limit is 20%"
    assert level("mfu=20%", unread).text == "mfu is 30% (peak unverified), the limit is 20%"
    assert level("mfu=20%", given).text == "mfu is 30% (peak from your settings), the limit is 20%"
    assert level("gpu_idle=70%", unread).text == "gpu_idle is 61%, the limit is 70%"
    assert against("mfu=-5%", [sheet], [other]).text == (
        "mfu is 30.0 points better than the baseline: 30% → 60% (peak from your settings, different peaks), "
        "the limit is 5 points"
    )


def test_gates_without_matching_findings_pass() -> None:
    assert level("low", replace(rich(), findings=[])).status == "passed"


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("gpu_idle=0.4", cpu_only()),
        ("peak_memory=20GiB", cpu_only()),
        ("mfu=0.3", cpu_only()),
        ("tokens_per_s=100", rich()),
        ("step_time=1s", empty()),
        ("gpu_idle=0.9", unusable()),
        ("high", unusable()),
        ("data_stall=0.9", replace(rich(), breakdown=[])),
    ],
)
def test_unmeasured_metrics_do_not_pass(text: str, result: Result) -> None:
    outcome = level(text, result)
    assert outcome.status == "not_checked"
    assert outcome.text


def test_every_run_must_have_measured_it() -> None:
    unmeasured = replace(rich(), memory=Memory(None, None, None, [], []))
    assert level("peak_memory=90GiB", rich(), unmeasured).status == "not_checked"


@pytest.mark.parametrize("text", ["step_time=+5%", "step_time=+20ms"])
def test_step_time_beyond_noise(text: str) -> None:
    runs = [stepping(us) for us in (100_000, 101_000, 99_000)]
    slower = [stepping(us * 1.3) for us in (100_000, 101_000, 99_000)]
    outcome = against(text, runs, slower)
    assert outcome.status == "failed"
    assert "30% worse than the baseline: 100.0 ms → 130.0 ms, the limit is" in outcome.text
    assert against(text, slower, runs).status == "passed"


def test_step_time_within_noise_does_not_fail() -> None:
    base = [stepping(us) for us in (100_000, 120_000, 90_000)]
    head = [stepping(us) for us in (110_000, 125_000, 100_000)]
    outcome = against("step_time=+5%", base, head)
    assert outcome.status == "passed"
    assert outcome.text.endswith("the change is within noise")


def test_a_change_that_two_runs_of_the_same_code_may_show_does_not_fail() -> None:
    steady = [99_990.0, 100_000.0, 100_010.0, 100_000.0]
    outcome = against("step_time=+2%", [stepping(100_000, steady)], [stepping(104_000, steady)])
    assert (outcome.status, outcome.text[-15:]) == ("passed", "is within noise")
    assert against("step_time=+2%", [stepping(100_000, steady)], [stepping(120_000, steady)]).status == "failed"


def test_one_step_has_not_passed() -> None:
    base, head = (stepping(us, [100_000.0]) for us in (100_000, 300_000))
    assert against("step_time=+5%", [base], [head]).status == "not_checked"


@pytest.mark.parametrize(
    "head", [empty(), unusable(), replace(rich(), step=Step("window", 1, 0, 9e5, [0], 9e5, None, None, [9e5]))]
)
def test_step_time_that_cannot_be_compared_has_not_passed(head: Result) -> None:
    assert against("step_time=+5%", [rich()], [head]).status == "not_checked"


def test_other_metrics_against_a_baseline() -> None:
    more = replace(rich(), memory=replace(rich().memory, peak_allocated_bytes=26 * GIB))
    idle = replace(rich(), gpu=replace(rich().gpu, idle_share=0.66))
    slow = replace(stepping(100_000), throughput=Throughput(900.0, None, None, None))
    fast = replace(stepping(90_000), throughput=Throughput(1000.0, None, None, None))
    assert against("peak_memory=+10%", [rich()], [more]).status == "failed"
    assert against("peak_memory=+3GiB", [rich()], [more]).status == "passed"
    assert against("gpu_idle=+5%", [rich()], [idle]).text == (
        "gpu_idle is 5.1 points worse than the baseline: 61% → 66%, the limit is 5 points"
    )
    assert against("gpu_idle=+0.06", [rich()], [idle]).status == "passed"
    assert against("tokens_per_s=-5%", [fast], [slow]).status == "failed"
    assert against("tokens_per_s=-5%", [slow], [fast]).status == "passed"
    assert against("peak_memory=+10%", [cpu_only()], [rich()]).status == "not_checked"
    assert against("peak_memory=+10%", [rich()], [rich()]).text.startswith(
        "peak_memory is 23.4 GiB, as in the baseline"
    )


def test_a_larger_batch_can_be_judged_by_its_throughput() -> None:
    small = replace(stepping(100_000), throughput=Throughput(None, 320.0, None, None))
    large = replace(stepping(160_000), throughput=Throughput(None, 400.0, None, None))
    assert against("samples_per_s=-5%", [small], [large]).status == "passed"
    assert against("samples_per_s=-5%", [large], [small]).status == "failed"
    assert against("step_time=+5%", [small], [large]).status == "not_checked"


def test_new_findings() -> None:
    without = replace(rich(), findings=rich().findings[1:])
    outcome = against("finding=new-high", [without], [rich()])
    assert (outcome.status, outcome.text) == ("failed", "new findings of high impact: DL001")
    assert against("finding=new-low", [rich()], [without]).status == "passed"


def test_a_finding_that_may_not_be_new_fails_no_gate() -> None:
    """The step of BASE is so long that it may have left the finding out."""
    longer = replace(rich().step, typical_us=rich().step.typical_us * 20)
    without = replace(rich(), findings=rich().findings[1:], step=longer)
    assert against("finding=new-high", [without], [rich()]).status == "passed"


def test_a_finding_that_the_baseline_could_not_check_is_not_checked() -> None:
    checks = [replace(check, status="not_checked") if check.code == "DL001" else check for check in rich().checks]
    blind = replace(rich(), findings=rich().findings[1:], checks=checks)
    outcome = against("finding=new-high", [blind], [rich()])
    assert outcome.status == "not_checked"
    assert "DL001" in outcome.text


def test_a_gate_that_needs_a_baseline_has_not_passed_without_one() -> None:
    for text in ("step_time=+5%", "finding=new-high"):
        assert level(text, rich()).status == "not_checked"


def test_limited_traces_are_judged() -> None:
    assert level("gpu_idle=0.4", replace(rich(), quality=Quality("limited", []))).status == "failed"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "critical",
        "finding=info",
        "finding=new",
        "gpu_idle",
        "gpu_idle=",
        "gpu_idle=40",
        "gpu_idle=-5%",
        "gpu_idel=0.4",
        "mfu=+5%",
        "step_time=400",
        "step_time=5%",
        "step_time=+5GiB",
        "step_time=1e3ms",
        "peak_memory=70",
        "step_time=+5%,",
        "gpu_idle=0.4\n",
    ],
)
def test_invalid_gates_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"no such gate|not a valid limit"):
        Gate.parse(text, "fail")
