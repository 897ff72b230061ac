"""Memory and step-time rules: each fires on its planted trace, at its price and place, and not on the fixed twin."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from statistics import mean, median
from typing import TYPE_CHECKING

import pytest
from test_tq import REAL, facts_of, launched, real

from fixtures.generate import Planted
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.requirements import lacks
from traceopt.result.finding import Finding, Saving
from traceopt.rules.registry import builtin_rules
from traceopt.rules.savings.price import Priced
from traceopt.testing import Machine
from traceopt.testing import events as small_traces
from traceopt.testing.machine import A100

if TYPE_CHECKING:
    from conftest import GetExample

RULES = {rule.code: rule() for rule in builtin_rules()}
ALEXNET = "hta/critical_path/alexnet/benchmark_result_2869224_1695835535_trace.json.gz"


def found(code: str, facts: Facts) -> list[Finding]:
    rule = RULES[code]
    if rule.applies(facts) or any(lacks(facts, need) for need in rule.requires):
        return []
    findings = [one.finding if isinstance(one, Priced) else one for one in rule.check(facts)]
    assert findings or rule.passed(facts)
    return findings


def cost_us(planted: Planted) -> float:
    return median(planted.step_us) - median(planted.fixed_step_us)


def saving_of(finding: Finding) -> Saving:
    assert finding.saving is not None
    return finding.saving


@pytest.mark.parametrize("scenario", ["healthy", "hidden_host_work", "cuda_graph", "slow_loader", "cold_start"])
@pytest.mark.parametrize("code", ["MM002", "EF002"])
def test_silent_without_their_fault(example: GetExample, code: str, scenario: str) -> None:
    assert found(code, example(scenario).facts) == []


@pytest.mark.real_traces
@pytest.mark.parametrize("path", [path for path in REAL if path != ALEXNET], ids=lambda path: path.split("/")[1])
def test_real_traces_have_memory_to_spare_and_a_quiet_allocator(path: str) -> None:
    facts = real(path)
    assert found("MM002", facts) == []
    assert found("MM003", facts) == []


class TestMemoryPressure:
    def test_fires(self, example: GetExample) -> None:
        subject = example("memory_pressure")
        (finding,) = found("MM002", subject.facts)
        saving = saving_of(finding)
        cost = median(subject.planted.step_us) - median(subject.planted.fixed_step_us)
        assert saving.low_us <= cost <= 1.01 * saving.high_us
        assert "1 allocation fails" in finding.why
        assert subject.planted.site in [str(location) for location in finding.locations]
        assert "checkpointing" in finding.fix.text

    def test_silent_on_the_fixed_twin(self, example: GetExample) -> None:
        facts = example("memory_pressure", fixed=True).facts
        assert found("MM002", facts) == []
        assert "GiB of 39.4 GiB" in RULES["MM002"].passed(facts)

    @pytest.mark.parametrize(("share", "fires"), [(0.95, True), (0.85, False)])
    def test_a_full_device_without_retries_carries_no_saving(self, share: float, fires: bool) -> None:
        total = int(share * 42_297_524_224)
        sample = {
            "Total Allocated": total // 2,
            "Total Reserved": total,
            "Bytes": 512,
            "Device Type": 1,
            "Device Id": 0,
        }
        mark = {"ph": "i", "s": "t", "name": "[memory]", "pid": 100, "tid": 1, "ts": 500, "args": sample}
        findings = found("MM002", steps_of([10_000.0] * 3, extra=[mark]))
        assert len(findings) == fires
        assert all(finding.saving is None and finding.impact == "info" for finding in findings)


class TestAllocatorChurn:
    def test_fires(self, example: GetExample) -> None:
        subject = example("cuda_malloc")
        (finding,) = found("MM003", subject.facts)
        saving = saving_of(finding)
        assert finding.impact == "high"
        cost = median(subject.planted.step_us) - median(subject.planted.fixed_step_us)
        assert saving.low_us <= cost <= 1.01 * saving.high_us
        assert subject.planted.site in [str(location) for location in finding.locations]
        assert {row.what for row in finding.evidence} >= {"cudaMalloc", "cudaFree"}
        assert finding.shares_cause_with == []
        assert "The saving counts" not in finding.why

    @pytest.mark.parametrize("scenario", ["cuda_malloc", "memory_pressure", "cold_start"])
    def test_silent_on_the_fixed_twin(self, example: GetExample, scenario: str) -> None:
        assert found("MM003", example(scenario, fixed=True).facts) == []

    def test_the_start_is_no_churn(self, example: GetExample) -> None:
        assert found("MM003", example("cold_start").facts) == []

    @pytest.mark.real_traces
    def test_without_step_marks_allocations_have_to_recur(self) -> None:
        assert found("MM003", real("public/param_linear_2080ti.json.gz")) == []
        assert found("MM003", real(ALEXNET)) == []

    @staticmethod
    def uncached(frees_us: Sequence[float], marked: bool = True, emptied: bool = False) -> Facts:
        """Every tensor asks the driver; `frees_us`: what each of its 30 frees takes, by step."""
        machine = Machine(A100, with_stack=1)
        for us in frees_us:
            with machine.step() if marked else nullcontext(), machine.python("train.py(5): step"):
                for _ in range(30):
                    start = machine.now
                    machine.call("cudaMalloc", 2)
                    machine.events.append(small_traces.op("aten::empty", start, 3))
                    machine.launch(40)
                    if emptied:
                        with machine.python("torch/cuda/memory.py(40): empty_cache"):
                            machine.call("cudaFree", us)
                    else:
                        machine.call("cudaFree", us)
        return machine.facts()

    def test_an_allocator_that_is_switched_off(self) -> None:
        (finding,) = found("MM003", self.uncached([500.0] * 4))
        assert finding.title == "Switch the caching allocator on"
        assert "PYTORCH_NO_CUDA_MEMORY_CACHING" in finding.fix.text
        assert "HIP" not in finding.fix.text
        assert "take longer" not in finding.why

    def test_the_driver_takes_longer_for_the_same_calls(self) -> None:
        (finding,) = found("MM003", self.uncached([100.0, 100.0, *[1_000.0] * 4]))
        assert "All recorded steps make as many calls, but the GPU waits" in finding.why
        assert saving_of(finding).est_us == pytest.approx(30 * 960, rel=0.1)

    def test_without_marks_the_calls_of_the_whole_recording_recur(self) -> None:
        """The first two of five iterations have 40% of the work, and 8% of the time."""
        facts = self.uncached([100.0, 100.0, *[1_000.0] * 3], marked=False)
        assert not facts.has_step_marks
        assert facts.idle.recurring_ns("allocation") >= 0.95 * facts.idle.total_ns("allocation")

    def test_frames_without_empty_cache_rule_it_out(self, example: GetExample) -> None:
        assert self.uncached([500.0] * 4, emptied=True).allocator.is_emptied
        facts = example("cuda_malloc").facts
        assert facts.allocator.is_emptied == any("empty_cache" in name for name in facts.trace.names)
        assert not facts.allocator.is_off

    @pytest.mark.real_traces
    def test_an_allocator_that_is_switched_off_for_real(self) -> None:
        facts = real("public/tl_ddp_resnet18_mi300.json.gz")
        (finding,) = found("MM003", facts)
        assert (finding.impact, finding.title) == ("high", "Switch the caching allocator on")
        assert "PYTORCH_NO_HIP_MEMORY_CACHING" in finding.fix.text
        assert "the GPU waits 38.9 ms for them" in finding.why
        assert saving_of(finding).est_us == pytest.approx(976_000, rel=0.01)  # of 1,053 ms

    def test_retries_point_at_the_full_memory(self, example: GetExample) -> None:
        (finding,) = found("MM003", example("memory_pressure").facts)
        assert finding.shares_cause_with == ["MM002"]


def steps_of(
    lengths: Sequence[float],
    extra: Sequence[small_traces.Json] = (),
    work: float | None = None,
    **metadata: object,
) -> Facts:
    """Steps of the given lengths (us); a kernel fills 9 ms of each, or `work` of its length."""
    events, start = list(extra), 0.0
    for index, length in enumerate(lengths):
        events.append(small_traces.annotation(f"ProfilerStep#{index}", start, length))
        events += launched(start + 20, 9_000 if work is None else work * length, index + 1)
        start += length
    return facts_of(events, **metadata)


class TestSlowSteps:
    def test_fires_and_names_the_cause(self, example: GetExample) -> None:
        subject = example("slow_steps")
        (finding,) = found("EF002", subject.facts)
        saving = saving_of(finding)
        assert saving.low_us <= mean(subject.planted.step_us) - median(subject.planted.step_us) <= 1.05 * saving.high_us
        assert "waiting for data" in finding.why
        assert finding.confidence == "high"
        assert subject.planted.site in [str(location) for location in finding.locations]

    def test_silent_on_the_fixed_twin(self, example: GetExample) -> None:
        facts = example("slow_steps", fixed=True).facts
        assert found("EF002", facts) == []
        assert "slowest of 8 steps" in RULES["EF002"].passed(facts)

    def test_a_period_needs_three(self) -> None:
        usual, slow = 10_000.0, 20_000.0
        (three,) = found("EF002", steps_of([usual, slow, usual, usual] * 3))
        assert "every 4 steps" in three.why
        assert saving_of(three).est_us == pytest.approx(3 * 10_000 / 12)
        (two,) = found("EF002", steps_of([usual, slow, usual, usual] * 2))
        assert "every" not in two.why
        assert saving_of(two).est_us == pytest.approx(2 * 10_000 / 8)
        assert saving_of(two).low_us == pytest.approx(10_000 / 8)  # the slowest may be a one-off

    @pytest.mark.parametrize(("waited_us", "contended"), [(3e5, True), (1e4, False)])
    def test_steps_that_a_busy_machine_slows_have_no_saving(self, waited_us: float, contended: bool) -> None:
        wait = {"us": waited_us, "cpu_us": 7e5, "wall_us": 1e6}
        run = {"ledger": {"step_us": [10_000.0] * 20, "core_wait": wait}}
        (finding,) = found("EF002", steps_of([10_000.0, 20_000.0, 10_000.0, 10_000.0] * 3, traceopt=run))
        assert (finding.saving is None) is contended
        assert ("waited for a free core for 30% of the run" in finding.why) is contended
        assert finding.shares_cause_with == (["PY002"] if contended else [])

    def test_the_first_step_is_start_up_and_one_other_is_no_saving(self) -> None:
        (finding,) = found("EF002", steps_of([20_000.0, 10_000.0, 10_000.0, 10_000.0] * 2))
        assert finding.saving is None

    def test_one_slow_step_is_no_saving(self) -> None:
        (finding,) = found("EF002", steps_of([10_000.0] * 5 + [20_000.0]))
        assert finding.saving is None
        assert found("EF002", steps_of([20_000.0] + [10_000.0] * 5)) == []

    @pytest.mark.parametrize(("long_us", "places"), [(60_000.0, ["vae.py:85"]), (40_000.0, [])])
    def test_a_recorded_long_step_ends_where_those_of_the_run_do(self, long_us: float, places: list[str]) -> None:
        """A step is long from five times the usual one on; the trace has no place for what it did."""
        ends = [{"file": "vae.py", "line": 85, "function": "train", "count": 9, "us": 9 * long_us}]
        ledger = {"step_us": [10_000.0] * 20, "long_steps": ends}
        (finding,) = found("EF002", steps_of([10_000.0] * 5 + [long_us], traceopt={"ledger": ledger}))
        assert [str(location) for location in finding.locations] == places
        assert finding.fix.text.endswith("The long steps end at the line named here.") == bool(places)

    def test_steps_with_different_causes_are_told_apart(self) -> None:
        """The mean of both would blame one cause, and advise on neither."""
        machine = Machine({"id": 0, "name": "NVIDIA A100-SXM4-40GB"})
        for index in range(8):
            with machine.step():
                if index == 3:
                    with machine.annotate("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
                        machine.idle(20_000)
                if index == 5:
                    with machine.python("train.py(9): train"), machine.python("<built-in function collect>"):
                        machine.idle(14_000)
                machine.launch(9_000)
                machine.synchronize()
        (finding,) = found("EF002", machine.facts())
        assert "They have different causes: waiting for data grew by 20." in finding.why
        assert " in ProfilerStep#3; garbage collection grew by 14." in finding.why
        assert finding.fix.text.startswith("Waiting for data: use more loader workers")
        assert "Garbage collection: freeze long-lived objects" in finding.fix.text
        assert set(finding.shares_cause_with) == {"DL005", "PY001"}

    def test_a_host_that_launches_the_same_work_later_is_not_told_to_look_for_other_work(self) -> None:
        machine = Machine({"id": 0, "name": "NVIDIA A100-SXM4-40GB"})
        for index in range(8):
            with machine.step():
                for _ in range(100):
                    start = machine.now
                    machine.idle(250 if index == 4 else 20)
                    machine.launch(90)
                    machine.events.append(small_traces.op("aten::mm", start, machine.now - start))
                machine.synchronize()
        (finding,) = found("EF002", machine.facts())
        assert "The part that grew most is launching GPU work" in finding.why
        assert "launches the same GPU work more slowly" in finding.fix.text
        assert "evaluation" not in finding.fix.text
        assert finding.confidence == "low"

    def test_more_work_is_no_waste(self) -> None:
        (finding,) = found("EF002", steps_of([10_000.0, 20_000.0, 10_000.0, 10_000.0, 20_000.0, 10_000.0], work=0.95))
        assert "compute kernels" in finding.why
        assert finding.saving is None

    def test_a_wide_spread_or_few_steps_are_not_judged(self) -> None:
        assert found("EF002", steps_of([8_000.0, 12_000.0, 9_000.0, 14_000.0, 10_000.0, 13_000.0], work=0.5)) == []
        assert "Too few recorded steps" in (RULES["EF002"].applies(steps_of([10_000.0, 20_000.0, 10_000.0])) or "")
