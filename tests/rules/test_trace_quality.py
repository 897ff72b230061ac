"""Each trace-quality rule speaks on a trace with its flaw, and is silent on one without."""

from __future__ import annotations

import gzip

import pytest
from support.findings import document_of
from support.quality import RULES, STEP_US, notes, on_a_gpu, outcome, steps, why_silent
from support.real import REAL, real

from fixtures.real_traces import TRACES
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.document.rank_document import rank_document
from traceopt.rules.bases.rank_rule import RunRule
from traceopt.rules.registry import TRACE_QUALITY
from traceopt.testing import Machine
from traceopt.testing import events as small_traces
from traceopt.testing.machine import A100


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
        assert self.run(op="aten::cudnn_convolution", deviceProperties=[]).quality.gpu_expected
        assert not self.run(op="aten::cudnn_is_acceptable", deviceProperties=[]).quality.gpu_expected


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
        """Whole kinds of events may be missing, so the idle time of the rest says nothing about the run."""
        whole = self.whole()
        for length in (len(whole) - 10, len(whole) // 2):
            facts = Facts(small_traces.read(whole[:length]))
            document = document_of(facts)
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
        assert (rank_document(facts, outcome(facts)).verdict or "").startswith("Part of the file is lost")

    @pytest.mark.real_traces
    def test_a_sample_has_no_savings(self) -> None:
        with (TRACES / "hta/trace_filter/sampled_rank-0.json.gz").open("rb") as stream:
            facts = Facts(read_trace(stream, "sampled"))
        document = document_of(facts)
        assert document.findings
        assert (document.plan, [one.code for one in document.findings if one.saving]) == ([], [])

    def test_findings_in_a_damaged_file_have_low_confidence(self) -> None:
        whole = self.whole()
        for trace, confidences in ((whole, {"medium"}), (whole[:-1], {"low"})):
            facts = Facts(small_traces.read(trace))
            document = document_of(facts)
            assert {finding.confidence for finding in document.findings if finding.code == "TC001"} == confidences
            assert (document.verdict or "").startswith("Part of the file is lost") == (trace != whole)
