"""Each trace-quality rule speaks on a trace with its flaw, and is silent on one without."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from fixtures import broken
from fixtures.real_traces import TRACES
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.document.rank_document import rank_document
from traceopt.rules.bases.rank_rule import RunRule
from traceopt.rules.engine import RulesOutcome, run_rules
from traceopt.rules.registry import TRACE_QUALITY, builtin_rules
from traceopt.testing import Machine
from traceopt.testing import events as small_traces
from traceopt.testing.machine import A100

if TYPE_CHECKING:
    from conftest import GetExample

RULES = [rule() for rule in builtin_rules() if rule.code.startswith("TQ")]
GPU = {"id": 0, "name": "NVIDIA A100-SXM4-40GB", "totalGlobalMem": 42_297_524_224, "computeMajor": 8, "computeMinor": 0}
STEP_US = 10_000.0


def outcome(facts: Facts) -> RulesOutcome:
    return run_rules(RULES, facts, debug=True)


def notes(facts: Facts) -> dict[str, str]:
    """Texts of the notes by code."""
    return {note.code: note.text for note in outcome(facts).notes}


def reason(facts: Facts, code: str) -> str:
    """Why a rule did not speak."""
    (check,) = (check for check in outcome(facts).checks if check.code == code)
    assert check.status in ("passed", "not_applicable", "not_checked")
    return check.reason


def facts_of(events: list[small_traces.Json], **metadata: object) -> Facts:
    return Facts(small_traces.read(small_traces.document(events, **{"deviceProperties": [GPU], **metadata})))


def steps(count: int = 3, busy_us: float = 9_900, name: str = "ProfilerStep#{}") -> Iterator[small_traces.Json]:
    """Steps of 10 ms with one kernel each."""
    for index in range(count):
        start = index * STEP_US
        yield small_traces.annotation(name.format(index), start, STEP_US)
        yield from launched(start + 20, busy_us, index + 1)


def launched(at: float, kernel_us: float, correlation: int, wait_us: float = 10) -> list[small_traces.Json]:
    """A kernel and its launch."""
    return [
        small_traces.op("aten::mm", at - 10, 30),
        small_traces.runtime("cudaLaunchKernel", at, 5, correlation),
        small_traces.kernel("ampere_sgemm_128x64_tn", at + wait_us, kernel_us, correlation),
    ]


def real(path: str) -> Facts:
    with (TRACES / path).open("rb") as stream:
        return Facts(read_trace(stream, path))


def test_a_good_trace_has_no_notes() -> None:
    facts = facts_of([*steps()])
    assert notes(facts) == {}
    assert all(reason(facts, rule.code) for rule in RULES if not isinstance(rule, RunRule))
    assert {rule.family for rule in RULES} == {TRACE_QUALITY}


REAL = {
    "hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz": {"TQ001", "TQ002", "TQ003"},
    "hta/rank_non_gpu/rank_non_gpu.json.gz": {"TQ001", "TQ002"},
    "hta/cupti_profiler/benchmark_result_924719_1679055439_trace.json.gz": {"TQ001", "TQ002"},
    "hta/mtia_inference_trace/mtia_inference_rank_0.json.gz": {"TQ007"},
    "hta/trace_filter/sampled_rank-0.json.gz": {"TQ003"},
    "hta/trace_filter/sampled_rank-1.json.gz": {"TQ003"},
    "hta/critical_path/alexnet/benchmark_result_2869224_1695835535_trace.json.gz": {"TQ002", "TQ004"},
    "hta/critical_path/cuda_event_sync/event_sync_trace.json.gz": {"TQ002", "TQ003", "TQ004"},
    "hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz": {"TQ002", "TQ004"},
    "tracelens/perf_model/normalization/normalization_layer_test.json.gz": {"TQ002", "TQ004"},
    "hta/negative_queue_length_values_check/rank0.json.gz": {"TQ010"},
    "tracelens/inference/sglang_prefilldecode/sglang_Qwen3-8B_prefilldecode.json.gz": {"TQ003"},
    "tracelens/inference/vllm_decode_full/graph_execution.json.gz": {"TQ003"},
    "tracelens/mi300/resnet_act_checkpoint.json.gz": {"TQ003"},
    "tracelens/torch_compile_triton/trace.json.gz": set(),
    "hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz": set(),
    "hta/trace_diff/control/control.json.gz": set(),
    "kineto/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz": set(),
}


@pytest.mark.real_traces
@pytest.mark.parametrize(("path", "codes"), REAL.items(), ids=[path.split("/")[1] for path in REAL])
def test_real_traces(path: str, codes: set[str]) -> None:
    found = notes(real(path))
    if "TQ007" in codes:
        assert "MTIA" in found["TQ007"]
        assert "TQ001" not in found
    else:
        assert set(found) == codes


class TestNoGpuEvents:
    @pytest.mark.parametrize("step", ["cpu_only", "healthy"])
    def test_a_cpu_only_run_differs_from_a_gpu_run(self, example: GetExample, step: str) -> None:
        found = notes(example(step).facts)
        assert ("CPU-only run" in found.get("TQ001", "")) == (step == "cpu_only")

    def test_launches_without_kernels(self) -> None:
        events = [event for event in steps() if event["cat"] != "kernel"]
        assert "3 kernel launches but no kernel" in notes(facts_of(events))["TQ001"]

    def test_a_counter_run_has_no_durations(self) -> None:
        events = [event for event in steps() if event["cat"] != "kernel"]
        events.append(small_traces.span("cuda_profiler_range", "__cuda_kernel", 0, 10))
        assert "Hardware counters" in notes(facts_of(events))["TQ001"]

    def test_work_outside_the_steps(self) -> None:
        events = [event for event in steps() if event["cat"] != "kernel"]
        events += [small_traces.kernel("k", 100_000, 10, 999)]
        assert "lie outside the measured steps" in notes(facts_of(events))["TQ001"]


class TestNoSteps:
    def test_the_whole_file(self, example: GetExample) -> None:
        assert "TQ002" in notes(example("no_profiler_step").facts)
        assert "TQ002" not in notes(example("slow_loader").facts)

    def test_one_step_cannot_tell_a_one_off(self) -> None:
        assert "Only one step" in notes(facts_of([*steps(1, busy_us=5_000)]))["TQ002"]

    def test_an_annotation_is_used_as_the_step(self) -> None:
        found = notes(facts_of([*steps(4, busy_us=5_000, name="train_step")]))
        assert "the 4 ranges named 'train_step'" in found["TQ002"]

    def test_a_busy_window_needs_no_steps(self) -> None:
        facts = facts_of([*steps(1)])
        assert "idle for only" in reason(facts, "TQ002")

    @staticmethod
    def without_launches(mark_us: float) -> Facts:
        """Five kernels of 10 ms, one after the other, and step marks of the host of another length."""
        events = [small_traces.op("aten::mm", 0, 5)]
        for index in range(5):
            events.append(small_traces.annotation(f"ProfilerStep#{index}", index * mark_us, mark_us))
            events.append(small_traces.kernel("ampere_sgemm_128x64_tn", 100 + index * STEP_US, 9_900, index + 1))
        return facts_of(events)

    def test_marks_of_a_host_that_runs_ahead_say_nothing_without_launches(self) -> None:
        """The host is through its five steps after 5 ms, and the device works for 50 ms."""
        facts = self.without_launches(mark_us=1_000)
        assert (facts.steps.source, facts.steps.count) == ("window", 1)
        assert facts.step_ns == pytest.approx(50e6, rel=0.01)
        assert "Nothing shows to which step the work belongs" in notes(facts)["TQ002"]
        document = rank_document(facts, outcome(facts))
        assert "of the trace" in document.verdict
        assert document.step.source == "window"
        labels = {part.label for part in document.breakdown if not part.busy}
        assert [label for label in labels if "aunch" in label] == []

    def test_marks_that_the_device_keeps_up_with_are_steps(self) -> None:
        facts = self.without_launches(mark_us=STEP_US)
        assert (facts.steps.source, facts.steps.count) == ("profiler_step", 5)
        assert "TQ002" not in notes(facts)


class TestCroppedOrSampled:
    def test_a_file_that_starts_inside_a_step(self, example: GetExample) -> None:
        assert "starts inside a step" in notes(example("cropped").facts)["TQ003"]
        assert "TQ003" not in notes(example("healthy").facts)

    def test_work_of_earlier_steps(self) -> None:
        earlier = small_traces.kernel("leftover", 5, 5_000, 999)
        facts = facts_of([earlier, *steps(1), *launched(6_000, 3_000, 2)])
        assert facts.quality.lost_launches == 0
        assert "launched before the recording" in notes(facts)["TQ003"]

    def test_numbered_events_are_missing(self) -> None:
        events = [{**e, "args": {**e["args"], "Ev Idx": 10 * i}} for i, e in enumerate(steps())]
        found = notes(facts_of(events))
        assert "sampled" in found["TQ003"]
        whole = [{**e, "args": {**e["args"], "Ev Idx": i}} for i, e in enumerate(steps())]
        assert notes(facts_of(whole)) == {}

    def test_the_first_work_waits_for_some_that_is_not_there(self) -> None:
        late = [small_traces.annotation("ProfilerStep#0", 0, STEP_US), *launched(20, 900, 90, wait_us=8_000)]
        found = notes(facts_of([*late, small_traces.annotation("ProfilerStep#1", STEP_US, STEP_US)]))
        assert (
            "The first 8.0 ms of the recording are before the step: the GPU very likely still ran work"
            in found["TQ003"]
        )
        assert "TQ010" not in found


class TestColdStart:
    def test_context_and_code_loading(self, example: GetExample) -> None:
        assert "not a steady-state step" in notes(example("cold_start").facts)["TQ004"]
        assert notes(example("cold_start", fixed=True).facts) == {}

    def test_a_short_allocation_is_no_context(self) -> None:
        def allocating(at: float, us: float) -> Facts:
            call = small_traces.runtime("cudaMalloc", at, us, 0)
            return facts_of([*steps(3, 4_000), small_traces.op("aten::empty", at, us), call])

        assert "TQ004" not in notes(allocating(4_500, 4_000))
        long = allocating(14_500, 14_500)
        assert long.quality.cold_share > 0.1
        assert "TQ004" in notes(long)


class TestDroppedEvents:
    def test_launches_without_a_kernel(self) -> None:
        unanswered = [small_traces.runtime("cudaLaunchKernel", 5_000 + 10 * i, 5, 100 + i) for i in range(2)]
        note = notes(facts_of([*steps(), *unanswered]))["TQ005"]
        assert "2 of 5 kernel launches (40%) have no kernel" in note
        assert "busy time is understated and idle time overstated" in note  # also where the GPU is hardly idle

    def test_kernels_without_a_launch(self) -> None:
        orphan = small_traces.kernel("orphan", 9_940, 20, 100)
        found = notes(facts_of([*steps(), orphan]))
        assert "1 of 4 GPU events (25%) have no launch" in found["TQ005"]

    def test_a_capture_launches_nothing(self) -> None:
        captured = [small_traces.runtime("cudaLaunchKernel", 5_000 + 10 * i, 5, 100 + i) for i in range(2)]
        capture = [
            small_traces.runtime("cudaStreamBeginCapture", 4_990, 5, 98),
            small_traces.runtime("cudaStreamEndCapture", 5_100, 5, 99),
        ]
        assert notes(facts_of([*steps(), *captured, *capture])) == {}

    def test_a_launch_is_in_the_file(self) -> None:
        assert "0 of 3 kernel launches" in reason(facts_of([*steps()]), "TQ005")


class TestProfilerOverhead:
    def test_stacks_and_a_slow_host(self, example: GetExample) -> None:
        assert "with_stack=False" in notes(example("launch_bound").facts)["TQ006"]
        assert "TQ006" not in notes(example("healthy").facts)

    def test_without_stacks_there_is_nothing_to_say(self) -> None:
        assert reason(facts_of([*steps(busy_us=1_000)]), "TQ006") == "No Python stacks were recorded."


def test_unsupported_device() -> None:
    events = [event for event in steps() if event["cat"] != "kernel"]
    found = notes(facts_of([*events, small_traces.span("hpu_op", "gemm", 100, 100)]))
    assert "Gaudi" in found["TQ007"]
    assert "TQ001" not in found


def test_ascend_files_device_work_below_a_process() -> None:
    named = {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "Ascend Hardware"}}
    work = {"ph": "X", "name": "MatMulV2", "pid": 7, "tid": 3, "ts": "150.125", "dur": 90.5, "args": {}}
    host = [event for event in steps() if event["cat"] == "cpu_op"]
    for events in ([named, work], [*host, named, work]):
        facts = facts_of(events, deviceProperties=[])
        assert "Ascend NPU" in notes(facts)["TQ007"]
        assert "TQ001" not in notes(facts)
        assert "Ascend NPU" in (rank_document(facts, outcome(facts)).verdict or "")


def test_gaudi_is_named_though_its_runtime_calls_are_private_use() -> None:
    events = [*steps(), small_traces.span("privateuse1_runtime", "launch", 50, 5)]
    facts = facts_of([*events, small_traces.span("hpu_op", "gemm", 100, 100)])
    assert facts.device.unsupported == "Gaudi (HPU)"


def test_graph_capture() -> None:
    def captured(us: float) -> Facts:
        calls = [
            small_traces.runtime("cudaStreamBeginCapture", 1_000, 5, 90),
            small_traces.runtime("cudaStreamEndCapture", 1_000 + us, 5, 91),
            small_traces.runtime("cudaGraphInstantiate", 1_010 + us, 5, 92),
        ]
        return facts_of([*steps(), *calls])

    assert "captured for 20% of the window" in notes(captured(6_000))["TQ008"]
    assert "TQ008" not in notes(captured(500))


def test_sampled_hardware_counters_lock_the_clocks() -> None:
    reading = {"ph": "C", "cat": "hardware_counters", "name": "sm__cycles", "pid": "GPU 0 Counters", "ts": 1}
    sampled = facts_of([*steps(), *({**reading, "args": {"": value}} for value in range(3))])
    assert "(3 readings), which locks the GPU's clocks" in notes(sampled)["TQ006"]
    other = {**reading, "cat": "gpu_memory"}
    assert "TQ006" not in notes(facts_of([*steps(), other]))


def test_events_that_are_not_used_are_counted() -> None:
    unused = [small_traces.span("cuda_event", "cudaEventRecord", 1, 0), small_traces.span("new", "x", 1, 0)]
    facts = facts_of([*steps(), *unused, small_traces.span("Trace", "PyTorch Profiler", 0, 1)])
    assert reason(facts, "TQ009").endswith(" 0 were lost. Counted but not used: 1 cuda_event, 1 new.")
    assert reason(facts_of([*steps()]), "TQ009").endswith(" 0 were lost.")


class TestTruncatedFile:
    @pytest.mark.parametrize("damage", broken.ENDINGS)
    def test_a_file_without_its_end(self, example: GetExample, damage: broken.Damage) -> None:
        data = damage(example("healthy").path.read_bytes())
        facts = Facts(read_trace(io.BytesIO(data), "x.json"))
        assert f"{facts.trace.meta.event_count:,} events were read" in notes(facts)["TQ009"]

    def test_many_lost_events(self) -> None:
        lost = [{**small_traces.op("aten::add", 1, 1), "ts": "soon"} for _ in range(3)]
        assert "3 were lost" in notes(facts_of([*steps(), *lost]))["TQ009"]

    def test_repaired_events_are_complete(self, example: GetExample) -> None:
        data = broken.raw_backslashes(example("healthy").path.read_bytes())
        facts = Facts(read_trace(io.BytesIO(data), "x.json"))
        assert facts.trace.meta.repaired_events > 0
        assert "repaired" in reason(facts, "TQ009")


def test_queued_idle() -> None:
    def waiting(wait_us: float) -> Facts:
        return facts_of([*steps(3, 4_000), *launched(4_000, 1_000, 50, wait_us=wait_us)])

    assert "already launched" in notes(waiting(5_000))["TQ010"]
    assert "TQ010" not in notes(waiting(500))


class TestCpuRuns:
    """A CPU run on a machine with a GPU uses the runtime only to ask for the machine's devices."""

    def run(self, *calls: str, op: str = "aten::addmm", **metadata: object) -> Facts:
        events = [small_traces.annotation(f"ProfilerStep#{i}", i * STEP_US, STEP_US) for i in range(3)]
        events += [small_traces.op(op, i * STEP_US + 100, 9_000) for i in range(3)]
        events += [small_traces.runtime(name, 50.0 * i, 5, i) for i, name in enumerate(calls)]
        return facts_of(events, **metadata)

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
        facts = facts_of(events)
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
        facts = facts_of(events, deviceProperties=[])
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
