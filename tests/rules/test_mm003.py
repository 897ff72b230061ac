"""MM003 allocator-churn: avoid repeated driver memory allocations."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import median

import pytest
from support.findings import found, of_code, saving_of
from support.real import REAL, real
from support.traces import GetExample

import traceopt
from fixtures.memory_snapshots import training
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.vocabulary.causes.table import ALLOCATION
from traceopt.result.edits import RemoveCall
from traceopt.testing import Machine
from traceopt.testing import events as small_traces
from traceopt.testing.machine import A100

ALEXNET = "hta/critical_path/alexnet/benchmark_result_2869224_1695835535_trace.json.gz"


@pytest.mark.real_traces
@pytest.mark.parametrize("path", [path for path in REAL if path != ALEXNET], ids=lambda path: path.split("/")[1])
def test_real_traces_have_memory_to_spare_and_a_quiet_allocator(path: str) -> None:
    facts = real(path)
    assert found("MM002", facts) == []
    assert found("MM003", facts) == []


class TestAllocatorChurn:
    def test_fires(self, example: GetExample) -> None:
        subject = example("cuda_malloc")
        (finding,) = found("MM003", subject.facts)
        saving = saving_of(finding)
        assert finding.impact == "high"
        cost = median(subject.planted.step_us) - median(subject.planted.fixed_step_us)
        assert saving.low_us <= cost <= 1.01 * saving.high_us
        assert subject.planted.site in [str(location) for location in finding.locations]
        assert {row.what for row in finding.evidence} == {"cudaMalloc", "cudaFree"}  # each time is listed once
        assert finding.shares_cause_with == []
        assert "The saving counts" not in finding.why

    def test_pinned_memory_is_no_memory_of_the_device(self, example: GetExample) -> None:
        subject = example("pinned_each_step")
        (finding,) = found("MM003", subject.facts)
        assert finding.title == "Allocate pinned memory once"
        assert saving_of(finding).est_us == pytest.approx(subject.planted.cost_us, rel=0.1)
        assert subject.planted.site in [str(location) for location in finding.locations]
        assert finding.fix.edits == []
        assert "expandable_segments" not in finding.fix.text

    def test_a_loader_that_pins_in_its_own_thread_holds_nobody_up(self) -> None:
        machine = Machine(A100, with_stack=1)
        for _ in range(4):
            with machine.step():
                machine.launch(5_000)
                now = machine.now
                machine.call("cudaHostAlloc", 3_000, tid=2)
                machine.now = now
                machine.synchronize()
        assert found("MM003", machine.facts()) == []

    @pytest.mark.parametrize("scenario", ["cuda_malloc", "pinned_each_step", "memory_pressure", "cold_start"])
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
        assert facts.idle.recurring_ns(ALLOCATION) >= 0.95 * facts.idle.total_ns(ALLOCATION)

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
        assert "the GPU waits 38.8 ms for them" in finding.why
        assert saving_of(finding).est_us == pytest.approx(976_000, rel=0.01)  # of 1,053 ms

    @staticmethod
    def emptied(every: int, frame: str = "empty_cache", others: int = 0) -> Facts:
        """Some steps empty the cache, which waits for the GPU and frees 10 blocks; `others`: frees at another line."""
        machine = Machine(A100, with_stack=1)
        for step in range(6):
            with machine.step(), machine.python("train.py(5): step"):
                for _ in range(10):
                    machine.call("cudaMalloc", 200)
                    machine.launch(300)
                for _ in range(others):
                    machine.call("cudaFree", 200, until=max(machine.ends.values()))
                if step % every == 0:
                    with machine.python("train.py(9): clean"), machine.python(f"torch/cuda/memory.py(220): {frame}"):
                        machine.synchronize()
                        machine.idle(100)
                        for _ in range(10):
                            machine.call("cudaFree", 300)
        return machine.facts()

    def test_the_call_that_empties_the_cache_goes_first(self) -> None:
        """Growing segments would be given back as well, and the sync inside is no other fault."""
        facts = self.emptied(every=1)
        (finding,) = found("MM003", facts)
        assert finding.title == "Remove torch.cuda.empty_cache() from the step"
        assert finding.fix.edits == [RemoveCall("torch.cuda.empty_cache")]
        assert "expandable_segments" not in finding.fix.text
        assert str(finding.locations[0]) == "train.py:9"
        assert found("HS003", facts) == []

    def test_other_frees_are_no_call_to_remove(self) -> None:
        """A cache that is emptied once, frees of something else, and most frees elsewhere."""
        for facts in (self.emptied(6, others=3), self.emptied(1, frame="release"), self.emptied(1, others=40)):
            (finding,) = found("MM003", facts)
            assert finding.title == "Avoid repeated driver memory allocations"
        assert found("HS003", self.emptied(1, frame="release"))

    def test_retries_point_at_the_full_memory(self, example: GetExample) -> None:
        (finding,) = found("MM003", example("memory_pressure").facts)
        assert finding.shares_cause_with == ["MM002"]


class TestSnapshot:
    """Allocations that succeed only after the cache was emptied."""

    def test_fires_on_them(self, tmp_path: Path) -> None:
        result = traceopt.analyze(str(training("retries").write(tmp_path / "snapshot.pickle")))
        (finding,) = of_code(result.findings, "MM003")
        assert "4 allocations succeeded only after the allocator had given" in finding.why

    def test_silent_where_the_cache_is_kept(self, tmp_path: Path) -> None:
        result = traceopt.analyze(str(training().write(tmp_path / "snapshot.pickle")))
        assert [check.status for check in result.checks if check.code == "MM003"] == ["passed"]
