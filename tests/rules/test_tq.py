"""Each trace-quality rule speaks on a trace with its flaw, and is silent on one without."""

from __future__ import annotations

import gzip
import io
from typing import TYPE_CHECKING

import pytest
from support.quality import RULES, STEP_US, launched, notes, on_a_gpu, outcome, steps, why_silent
from support.real import REAL, real

from fixtures import broken
from fixtures.real_traces import TRACES
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.document.rank_document import rank_document
from traceopt.rules.bases.rank_rule import RunRule
from traceopt.rules.engine import run_rules
from traceopt.rules.registry import TRACE_QUALITY, builtin_rules
from traceopt.testing import Machine
from traceopt.testing import events as small_traces
from traceopt.testing.machine import A100

if TYPE_CHECKING:
    from conftest import GetExample


def test_a_good_trace_has_no_notes() -> None:
    facts = on_a_gpu([*steps()])
    assert notes(facts) == {}
    assert all(why_silent(facts, rule.code) for rule in RULES if not isinstance(rule, RunRule))
    assert {rule.family for rule in RULES} == {TRACE_QUALITY}


@pytest.mark.real_traces
@pytest.mark.parametrize(("path", "codes"), REAL.items(), ids=[path.split("/")[1] for path in REAL])
def test_real_traces(path: str, codes: set[str]) -> None:
    found = notes(real(path))
    if "TQ007" in codes:
        assert "MTIA" in found["TQ007"]
        assert "TQ001" not in found
    else:
        assert set(found) == codes


class TestCroppedOrSampled:
    def test_a_file_that_starts_inside_a_step(self, example: GetExample) -> None:
        assert "starts inside a step" in notes(example("cropped").facts)["TQ003"]
        assert "TQ003" not in notes(example("healthy").facts)

    def test_work_of_earlier_steps(self) -> None:
        earlier = small_traces.kernel("leftover", 5, 5_000, 999)
        facts = on_a_gpu([earlier, *steps(1), *launched(6_000, 3_000, 2)])
        assert facts.quality.lost_launches == 0
        assert "launched before the recording" in notes(facts)["TQ003"]

    def test_numbered_events_are_missing(self) -> None:
        events = [{**e, "args": {**e["args"], "Ev Idx": 10 * i}} for i, e in enumerate(steps())]
        found = notes(on_a_gpu(events))
        assert "sampled" in found["TQ003"]
        whole = [{**e, "args": {**e["args"], "Ev Idx": i}} for i, e in enumerate(steps())]
        assert notes(on_a_gpu(whole)) == {}

    def test_the_first_work_waits_for_some_that_is_not_there(self) -> None:
        late = [small_traces.annotation("ProfilerStep#0", 0, STEP_US), *launched(20, 900, 90, wait_us=8_000)]
        found = notes(on_a_gpu([*late, small_traces.annotation("ProfilerStep#1", STEP_US, STEP_US)]))
        assert (
            "The first 8.0 ms of the recording are before the step: the GPU very likely still ran work"
            in found["TQ003"]
        )
        assert "TQ010" not in found


class TestDroppedEvents:
    def test_launches_without_a_kernel(self) -> None:
        unanswered = [small_traces.runtime("cudaLaunchKernel", 5_000 + 10 * i, 5, 100 + i) for i in range(2)]
        note = notes(on_a_gpu([*steps(), *unanswered]))["TQ003"]
        assert "2 of 5 kernel launches (40%) have no kernel" in note
        assert "busy time is understated and idle time overstated" in note  # also where the GPU is hardly idle

    def test_kernels_without_a_launch(self) -> None:
        orphan = small_traces.kernel("orphan", 9_940, 20, 100)
        found = notes(on_a_gpu([*steps(), orphan]))
        assert "1 of 4 GPU events (25%) have no launch" in found["TQ003"]

    def test_a_capture_launches_nothing(self) -> None:
        captured = [small_traces.runtime("cudaLaunchKernel", 5_000 + 10 * i, 5, 100 + i) for i in range(2)]
        capture = [
            small_traces.runtime("cudaStreamBeginCapture", 4_990, 5, 98),
            small_traces.runtime("cudaStreamEndCapture", 5_100, 5, 99),
        ]
        assert notes(on_a_gpu([*steps(), *captured, *capture])) == {}

    def test_a_launch_is_in_the_file(self) -> None:
        assert "0 of 3 kernel launches" in why_silent(on_a_gpu([*steps()]), "TQ003")


def test_events_that_are_not_used_are_counted() -> None:
    unused = [small_traces.span("cuda_event", "cudaEventRecord", 1, 0), small_traces.span("new", "x", 1, 0)]
    facts = on_a_gpu([*steps(), *unused, small_traces.span("Trace", "PyTorch Profiler", 0, 1)])
    assert why_silent(facts, "TQ003").endswith(" 0 were lost. Counted but not used: 1 cuda_event, 1 new.")
    assert why_silent(on_a_gpu([*steps()]), "TQ003").endswith(" 0 were lost.")


class TestTruncatedFile:
    @pytest.mark.parametrize("damage", broken.ENDINGS)
    def test_a_file_without_its_end(self, example: GetExample, damage: broken.Damage) -> None:
        data = damage(example("healthy").path.read_bytes())
        facts = Facts(read_trace(io.BytesIO(data), "x.json"))
        assert f"{facts.trace.meta.event_count:,} events were read" in notes(facts)["TQ003"]

    def test_many_lost_events(self) -> None:
        lost = [{**small_traces.op("aten::add", 1, 1), "ts": "soon"} for _ in range(3)]
        assert "3 were lost" in notes(on_a_gpu([*steps(), *lost]))["TQ003"]

    def test_repaired_events_are_complete(self, example: GetExample) -> None:
        data = broken.raw_backslashes(example("healthy").path.read_bytes())
        facts = Facts(read_trace(io.BytesIO(data), "x.json"))
        assert facts.trace.meta.repaired_events > 0
        assert "repaired" in why_silent(facts, "TQ003")


def test_queued_idle() -> None:
    def waiting(wait_us: float) -> Facts:
        return on_a_gpu([*steps(3, 4_000), *launched(4_000, 1_000, 50, wait_us=wait_us)])

    assert "already launched" in notes(waiting(5_000))["TQ010"]
    assert "TQ010" not in notes(waiting(500))


class TestCpuRuns:
    """A CPU run on a machine with a GPU uses the runtime only to ask for the machine's devices."""

    def run(self, *calls: str, op: str = "aten::addmm", **metadata: object) -> Facts:
        events = [small_traces.annotation(f"ProfilerStep#{i}", i * STEP_US, STEP_US) for i in range(3)]
        events += [small_traces.op(op, i * STEP_US + 100, 9_000) for i in range(3)]
        events += [small_traces.runtime(name, 50.0 * i, 5, i) for i, name in enumerate(calls)]
        return on_a_gpu(events, **metadata)

    def test_calls_that_use_no_gpu(self) -> None:
        facts = self.run("cudaGetDeviceCount", "cudaGetDeviceProperties", "cudaDeviceSynchronize")
        assert "launched no work on the machine's NVIDIA A100-SXM4-40GB" in notes(facts)["TQ001"]
        document = rank_document(facts, outcome(facts))
        assert document.quality.verdict != "unusable"
        assert (document.verdict or "").startswith("CPU run on a machine with a GPU: model work takes 9")

    @pytest.mark.parametrize(("optimizer_us", "named"), [(5_000, True), (3_000, False)])
    def test_the_verdict_names_an_optimizer_that_takes_most_of_the_work(self, optimizer_us: int, named: bool) -> None:
        events = [small_traces.annotation(f"ProfilerStep#{i}", i * STEP_US, STEP_US) for i in range(3)]
        events += [small_traces.op("aten::addmm", i * STEP_US, 4_000) for i in range(3)]
        optimizer = "Optimizer.step#SparseAdam.step"
        events += [small_traces.annotation(optimizer, i * STEP_US + 4_000, optimizer_us) for i in range(3)]
        events.append(small_traces.runtime("cudaGetDeviceCount", 0, 5, 0))
        facts = on_a_gpu(events)
        verdict = rank_document(facts, outcome(facts)).verdict or ""
        assert ("model work takes 90% of the step, most of it the optimizer (50%)." in verdict) == named
        assert ("the optimizer" in verdict) == named

    @pytest.mark.parametrize("call", ["cudaLaunchKernel", "cudaMalloc", "hipMemcpyWithStream", "cudaGraphLaunch"])
    def test_a_call_that_uses_the_gpu(self, call: str) -> None:
        facts = self.run("cudaGetDeviceCount", call)
        assert facts.quality.gpu_expected
        assert rank_document(facts, outcome(facts)).quality.verdict == "unusable"

    def test_without_runtime_calls_only_math_on_the_cpu_tells(self) -> None:
        assert self.run().quality.gpu_expected
        assert not self.run(op="aten::mkldnn_convolution").quality.gpu_expected
        assert not self.run(deviceProperties=[]).quality.gpu_expected


class TestPartsOfAFile:
    def test_a_sample_is_the_verdict_also_without_gpu_work(self) -> None:
        events = [small_traces.op("aten::addmm", i * 100.0, 90, **{"Ev Idx": 100 * i}) for i in range(50)]
        facts = on_a_gpu(events, deviceProperties=[])
        assert "only 1.0% of the events" in (rank_document(facts, outcome(facts)).verdict or "")

    def test_a_damaged_file_without_gpu_work_is_no_cpu_run(self) -> None:
        whole = small_traces.document(
            [small_traces.op("aten::addmm", i * 100.0, 90) for i in range(100)], deviceProperties=[]
        )
        sound, cut = Facts(small_traces.read(whole)), Facts(small_traces.read(whole[: len(whole) // 2]))
        assert "CPU-only run" in (rank_document(sound, outcome(sound)).verdict or "")
        document = rank_document(cut, outcome(cut))
        assert "CPU" not in (document.verdict or "")
        assert "unknown whether the run used a GPU" in notes(cut)["TQ001"]

    def test_a_file_cut_off_before_its_gpu_events_does_not_look_like_a_cpu_run(self) -> None:
        """Its header names a GPU: what the host did meanwhile is no breakdown of the step."""
        whole = self.whole()
        cut = Facts(small_traces.read(whole[: whole.index(b'"kernel"') - 20]))
        assert not len(cut.gpu.work)
        document = rank_document(cut, outcome(cut))
        assert (document.verdict or "").startswith("This file is cut off before its first GPU event")
        assert "A100" in (document.verdict or "")
        assert "cut off before its first GPU event" in notes(cut)["TQ001"]
        assert (document.breakdown, document.step.series, document.memory.curve) == ([], None, [])
        assert document.run.device is not None
        assert document.run.device.vendor == "nvidia"
        assert document.quality.verdict == "unusable"

    @staticmethod
    def whole() -> bytes:
        machine = Machine(A100)
        for _ in range(5):
            with machine.step():
                machine.launch(900, name="ampere_sgemm_128x64_tn")
                machine.synchronize()
        return machine.to_bytes().rstrip()

    def test_a_file_that_is_cut_off_is_not_judged(self) -> None:
        """Whole kinds of events may be missing: the idle time of the rest is not that of the run."""
        whole = self.whole()
        for length in (len(whole) - 10, len(whole) // 2):
            facts = Facts(small_traces.read(whole[:length]))
            document = rank_document(facts, run_rules([rule() for rule in builtin_rules()], facts))
            assert (document.verdict or "").startswith("This file is cut off")
            assert document.quality.verdict == "unusable"
            assert (document.plan, [one.code for one in document.findings if one.saving]) == ([], [])
            assert {one.confidence for one in document.findings} <= {"low"}

    @pytest.mark.real_traces
    def test_a_damaged_file_in_an_unusual_state_says_that_it_is_damaged(self) -> None:
        with gzip.open(TRACES / "public" / "part_a100_bs2.json.gz") as stream:
            whole = stream.read()
        facts = Facts(small_traces.read(whole[: whole.rindex(b"},", 0, len(whole) * 7 // 10) + 2]))
        assert facts.state is not None
        assert (rank_document(facts, outcome(facts)).verdict or "").startswith("Part of the file is lost. In the rest:")

    @pytest.mark.real_traces
    def test_a_sample_has_no_savings(self) -> None:
        with (TRACES / "hta/trace_filter/sampled_rank-0.json.gz").open("rb") as stream:
            facts = Facts(read_trace(stream, "sampled"))
        document = rank_document(facts, run_rules([rule() for rule in builtin_rules()], facts))
        assert document.findings
        assert (document.plan, [one.code for one in document.findings if one.saving]) == ([], [])

    def test_findings_in_a_damaged_file_have_low_confidence(self) -> None:
        whole = self.whole()
        for trace, confidences in ((whole, {"medium"}), (whole[:-1], {"low"})):
            facts = Facts(small_traces.read(trace))
            document = rank_document(facts, run_rules([rule() for rule in builtin_rules()], facts))
            assert {finding.confidence for finding in document.findings if finding.code == "TC001"} == confidences
            assert (document.verdict or "").startswith("Part of the file is lost.") == (trace != whole)
