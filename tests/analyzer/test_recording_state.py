"""A state of the recording that explains most idle time is the verdict, and what it hides has no price."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.findings import document_of
from support.real import real

from fixtures.real_traces import expected
from traceopt.result.document import Result
from traceopt.testing import Machine
from traceopt.testing.machine import A100

STATES = {
    "cold_start",
    "cropped_or_sampled",
    "gpu_idle_unattributable",
    "no_gpu_events",
    "not_steady_state",
    "unsupported_device",
}


def launch_bound(machine: Machine, launches: int = 60) -> None:
    """Small kernels, each launched long after the one before it has ended."""
    for _ in range(launches):
        machine.work(40, "aten::add")
        machine.launch(10, name="vectorized_elementwise_kernel")


def priced(result: Result) -> set[str]:
    return {finding.code for finding in result.findings if finding.impact in ("high", "medium")}


def cold_start(machine: Machine) -> None:
    machine.call("cudaLaunchKernel", 9_000)
    launch_bound(machine)


def context(machine: Machine) -> None:
    for _ in range(2):
        machine.call("cudaFree", 20_000)
    launch_bound(machine)


def compilation(machine: Machine) -> None:
    with machine.annotate("TorchDynamo: compile_inner"):
        machine.work(9_000, "aten::work")
    launch_bound(machine)


def capture(machine: Machine) -> None:
    launch_bound(machine, 30)
    machine.call("cudaStreamBeginCapture")
    machine.work(9_000)
    machine.call("cudaStreamEndCapture")
    launch_bound(machine, 30)


def untraced(machine: Machine) -> None:
    launch_bound(machine, 30)
    machine.idle(9_000)
    launch_bound(machine, 30)


def before_the_first_kernel(machine: Machine) -> None:
    machine.work(9_000)
    launch_bound(machine)


def waits_for_unrecorded_work(machine: Machine) -> None:
    launch_bound(machine, 30)
    machine.call("cudaStreamSynchronize", 9_000)
    launch_bound(machine, 30)


def without_kernels(machine: Machine) -> None:
    launch_bound(machine)
    for _ in range(600):
        machine.call("cudaLaunchKernel", 5)


def few_kernels(machine: Machine) -> None:
    launch_bound(machine, 5)


WHOLE_FILES: dict[str, tuple[Callable[[Machine], None], str, str]] = {
    "cold_start": (cold_start, "cold_start", "This is a cold start"),
    "context": (context, "cold_start", "This is a cold start"),
    "compile": (compilation, "compile", "compilation takes"),
    "graph_capture": (capture, "graph_capture", "capturing graphs takes"),
    "untraced": (untraced, "untraced", "the launching thread has no event"),
    "edges": (before_the_first_kernel, "edges", "waits for its first work"),
    "hidden_work": (waits_for_unrecorded_work, "hidden_work", "the file shows no GPU work meanwhile"),
    "lost_kernels": (without_kernels, "lost_kernels", "lacks the kernels of 91% of its launches"),
    "few_events": (few_kernels, "few_events", "only 5 GPU events"),
}


@pytest.mark.parametrize("name", WHOLE_FILES)
def test_a_state_is_the_verdict_and_no_faster_host_has_a_price(name: str) -> None:
    happens, state, words = WHOLE_FILES[name]
    machine = Machine(A100)
    happens(machine)
    facts = machine.facts()
    assert facts.state is not None
    assert facts.state.name == state
    result = document_of(facts)
    assert words in (result.verdict or "")
    assert priced(result) == set()
    assert result.combined is None


@pytest.mark.parametrize(("wait_us", "headline"), [(60_000, "Exposed"), (5_000, "This is a cold start")])
def test_a_cold_start_is_not_the_headline_where_a_collective_takes_more(wait_us: float, headline: str) -> None:
    machine = Machine(A100)
    machine.call("cudaLaunchKernel", 30_000)
    launch_bound(machine)
    machine.launch(wait_us, name="ncclDevKernel_SendRecv(x)")
    machine.synchronize()
    facts = machine.facts()
    assert facts.state is not None
    assert facts.state.name == "cold_start"
    assert document_of(facts).verdict.startswith(headline)


def silent_before(machine: Machine, kernel: str, us: float) -> None:
    """A repeated part of a step, with silence before its second kernel."""
    launch_bound(machine, 30)
    machine.idle(us)
    machine.launch(10, name=kernel)


@pytest.mark.parametrize(("later_us", "state"), [(0, "cold_start"), (9_000, "untraced")])
def test_silence_before_the_first_run_of_a_kernel_is_loading_unless_it_recurs(later_us: float, state: str) -> None:
    machine = Machine(A100)
    for us in (9_000, later_us, later_us):
        silent_before(machine, "reduce_kernel", us)
    facts = machine.facts()
    assert facts.state is not None
    assert facts.state.name == state


def test_compilation_recurs_after_a_step_that_is_left_out() -> None:
    machine = Machine(A100)
    for index in range(5):
        with machine.step():
            with machine.annotate("TorchDynamo: compile_inner"):
                machine.work(10 if index == 2 else 90_000, "aten::work")
            launch_bound(machine)
    facts = machine.facts()
    assert facts.steps.count == 4
    assert facts.state is None or facts.state.name != "compile"


def test_the_same_work_without_the_state_is_launch_bound() -> None:
    machine = Machine(A100)
    launch_bound(machine)
    facts = machine.facts()
    assert facts.state is None
    assert "LB002" in priced(document_of(facts))


@pytest.mark.parametrize("happens", [cold_start, context, compilation, capture, untraced], ids=lambda one: one.__name__)
def test_one_step_of_many_is_no_state(happens: Callable[[Machine], None]) -> None:
    machine = Machine(A100)
    for index in range(5):
        with machine.step():
            (happens if index == 1 else launch_bound)(machine)
    facts = machine.facts()
    assert facts.state is None
    assert "LB002" in priced(document_of(facts))


def test_a_few_kernels_per_step_are_enough_if_the_steps_repeat() -> None:
    machine = Machine(A100)
    for _ in range(3):
        with machine.step():
            few_kernels(machine)
    assert machine.facts().state is None


def test_nothing_is_promised_of_a_marked_cold_step() -> None:
    """It is to be recorded again."""
    machine = Machine(A100)
    with machine.step():
        cold_start(machine)
    facts = machine.facts()
    assert facts.state is not None
    assert facts.state.name == "cold_start"
    assert all(finding.saving is None for finding in document_of(facts).findings)


def test_device_work_keeps_its_price_in_a_cold_start() -> None:
    machine = Machine(A100)
    machine.call("cudaLaunchKernel", 100_000)
    for _ in range(60):
        machine.launch(1_000, name="ampere_sgemm_128x64_tn")
    machine.synchronize()
    facts = machine.facts()
    assert facts.state is not None
    assert facts.state.name == "cold_start"
    assert {"TC001", "TC002"} & priced(document_of(facts))
    assert "LB002" not in priced(document_of(facts))


def test_an_allocator_that_is_slow_all_the_time_is_no_cold_start() -> None:
    machine = Machine(A100)
    for _ in range(60):
        machine.call("cudaFree", 12_000)
        machine.launch(100)
    facts = machine.facts()
    assert facts.quality.cold_share == 0
    result = document_of(facts)
    assert "TQ004" not in {note.code for note in result.quality.notes}
    assert "MM003" in priced(result)


def python_work(machine: Machine) -> None:
    for _ in range(50):
        with machine.python("train.py(20): swap"):
            machine.idle(100)


@pytest.mark.parametrize(("steps", "place"), [(1, "before"), (1, "after"), (1, "between"), (3, "before")])
def test_python_at_the_edges_of_the_only_step_has_no_price(steps: int, place: str) -> None:
    machine = Machine(A100, with_stack=1)
    for _ in range(steps):
        with machine.step():
            for when in ("before", "between", "after"):
                if when == place:
                    with machine.python("train.py(12): reorder"):
                        python_work(machine)
                if when != "after":
                    for _ in range(20):
                        machine.launch(1_000, name="ampere_bf16_s16816gemm_128x64_tn")
                    machine.now = max(machine.ends.values())
    facts = machine.facts()
    assert facts.state is None
    found = {finding.code: finding for finding in document_of(facts).findings}
    assert (found["LB006"].saving is None) == (steps == 1 and place != "between")


def test_what_is_hidden_is_said_without_a_price() -> None:
    machine = Machine(A100)
    cold_start(machine)
    found = {finding.code: finding for finding in document_of(machine.facts()).findings}
    assert (found["LB002"].impact, found["LB002"].saving, found["LB002"].confidence) == ("info", None, "low")
    assert found["LB002"].why.endswith("What it costs in a steady step is unknown.")


def quiet_traces() -> list[str]:
    """Traces in which an expert saw no bottleneck: states only, or nothing of 3 % or more."""
    return [
        path
        for path, seen in expected().items()
        if "not_a_trace" not in {one["kind"] for one in seen["present"]}
        and not any(one["kind"] not in STATES and (one["share_of_time"] or 0) >= 3 for one in seen["present"])
    ]


REAL: dict[str, Any] = {
    "hta/critical_path/alexnet/benchmark_result_2869224_1695835535_trace.json.gz": "cold_start",
    "hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz": "cold_start",
    "tracelens/perf_model/normalization/normalization_layer_test.json.gz": "cold_start",
    "public/switch_a100_8b.json.gz": "cold_start",
    "hta/critical_path/cuda_event_sync/event_sync_trace.json.gz": "few_events",
    "public/sustain_a5000_1.json.gz": "untraced",
    "public/part_a100_bs256.json.gz": "compile",
    # steady, or busy
    "kineto/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz": None,
    "hta/nccl_parser_config/nccl_data.json.gz": None,
    "tracelens/h100/Falconsai_nsfw_image_detection/1016002.json.gz": None,
    "tracelens/h100/facebook_timesformer-base-finetuned-k400/1016002.json.gz": None,
    "tracelens/mi300/google_owlv2-large-patch14-ensemble/1016001.json.gz": None,
    "tracelens/mi210/gpu_only_trace/gpu_only_trace.json.gz": None,
    "tracelens/torch_compile_triton/trace.json.gz": None,
    "public/leimao_5080_nograph_man.json.gz": None,
    "public/param_linear_2080ti.json.gz": None,  # only the first iteration is cold
    "public/part_a100_bs2.json.gz": None,
    "public/sid_h100_a1.json.gz": None,
    "public/tb_a100_trace2.json.gz": None,
    "public/tl_ddp_resnet18_mi300.json.gz": None,
}


@pytest.mark.real_traces
@pytest.mark.parametrize(("path", "name"), REAL.items(), ids=list(REAL))
def test_real_states(path: str, name: str | None) -> None:
    state = real(path).state
    assert (state and state.name) == name


@pytest.mark.real_traces
@pytest.mark.parametrize("path", quiet_traces())
def test_nothing_is_priced_where_an_expert_saw_nothing(path: str) -> None:
    assert priced(document_of(real(path))) == set()
