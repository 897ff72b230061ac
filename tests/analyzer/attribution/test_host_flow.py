"""Dispatch leaves short gaps. In a long one the host did something else, and each kind has a cause of its own."""

from __future__ import annotations

import numpy as np
import pytest
from support.traces import FILES, AnalyzedTrace, over

from fixtures.real_traces import TRACES
from traceopt.analyzer.attribution.idle import LAUNCH_LATENCY_NS
from traceopt.analyzer.attribution.silent_work import LONG_NS
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.vocabulary.causes.table import (
    ALLOCATION,
    COMPILE,
    DATA_LOADING,
    HOST_COPY,
    IDLE_CAUSES,
    LOADER_STARTUP,
    LONG_PYTHON,
    MODULE_LOAD,
    STARTUP,
)
from traceopt.rules.catalogue.lb002_launch_bound import LaunchBound
from traceopt.rules.savings.starvation import dispatch_amount
from traceopt.testing import A100, Machine, answer
from traceopt.testing.events import Json, annotation, kernel, op, python, read, runtime, span

MAIN, AUTOGRAD = 1, 2
FETCH = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
STEP = annotation("ProfilerStep#0", 0, 200_000)


def launched(at: float, correlation: int, us: float = 100, tid: int = MAIN) -> list[Json]:
    """A launch of 5 us, and its kernel 10 us after the call began."""
    return [runtime("cudaLaunchKernel", at, 5, correlation, tid), kernel("gemm", at + 10, us, correlation)]


def between(*events: Json, us: float) -> dict[str, int]:
    """Causes, in us, of an idle gap of `us` between two kernels; the gap begins at 1000. Causes below 30 us, such as
    the launch itself, are left out.
    """
    facts = Facts(read([STEP, *launched(890, 1), *events, *launched(990 + us, 2)]))
    row = facts.gaps.start.tolist().index(1_000_000)
    assert facts.gaps.end[row] == (1_000 + us) * 1_000
    amount = facts.idle.amount[row] // 1_000
    return {cause.key: int(us) for cause, us in zip(IDLE_CAUSES, amount, strict=True) if us >= 30}


def test_an_operator_that_computes_on_the_cpu() -> None:
    randn = [op("aten::randn", 1_010, 5_000), op("aten::normal_", 1_020, 4_980)]
    assert between(*randn, us=5_100) == {"cpu_op": 4_980, "unrecorded": 90}


def test_a_cpu_operator_costs_its_time_once() -> None:
    facts = Facts(read([STEP, *launched(890, 1), op("aten::randn", 1_010, 5_000), *launched(6_090, 2)]))
    assert facts.cpu_operators.cost_ns.tolist() == [5_000_000]


def test_a_node_of_autograd_that_launches_lost_its_core() -> None:
    node = "autograd::engine::evaluate_function: ReluBackward0"
    calls = [op(node, 800, 20), op(node, 1_010, 4_990), runtime("cudaLaunchKernel", 5_950, 5, 7)]
    assert "cpu_op" not in between(*calls, us=7_000)


def test_an_operator_that_launches_lost_its_core() -> None:
    """Its launch is in a child, and the kernel of this call is lost."""
    events = [op("aten::ones_like", 1_010, 4_990), op("aten::empty_like", 1_020, 4_500)]
    events += [op("aten::fill_", 5_900, 90), runtime("cudaLaunchKernel", 5_950, 5, 7)]
    assert "cpu_op" not in between(*events, us=7_000)


def test_a_single_slow_call_of_several_lost_its_core() -> None:
    calls = [op("aten::ones", 1_010, 50), op("aten::ones", 1_100, 2_000), op("aten::ones", 3_200, 50)]
    assert "cpu_op" not in between(*calls, us=5_000)
    assert between(calls[0], calls[1], op("aten::ones", 3_200, 1_500), us=6_000)["cpu_op"] == 3_500


def test_operators_of_a_short_gap_are_dispatch() -> None:
    assert between(op("aten::randn", 1_010, 900), us=950) == {"launch": 905, "untraced": 45}


def test_many_small_operators_without_a_launch() -> None:
    views = [op("aten::slice", 1_000 + 10 * i, 10) for i in range(300)]
    assert between(*views, us=3_020) == {"small_ops": 3_000}


def test_the_operator_that_ends_a_long_gap_dispatches() -> None:
    events = [python("train.py(3): step", 1_000, 3_000), op("aten::mm", 3_700, 200), *launched(3_800, 9)]
    assert between(*events, us=2_810) == {"untraced_python": 2_700, "launch": 110}


def test_python_in_a_long_gap() -> None:
    calls = [python("model.py(8): mask", 1_010 + 100 * i, 80) for i in range(20)]
    assert between(python("train.py(3): step", 1_000, 2_100), *calls, us=2_130) == {"long_python": 2_100}


def test_nothing_recorded() -> None:
    assert between(us=2_000) == {"unrecorded": 1_990}
    assert between(us=900) == {"untraced": 895}


def test_torchscript_compiles_at_the_first_calls() -> None:
    events = [
        op("forward_fn", 1_000, 150_000),
        op("fallback_function", 150_900, 80),
        op("fused_mul_add_15680171862954066917", 150_910, 60),
        runtime("cuLaunchKernel", 150_920, 5, 9),
        kernel("fused_mul_add_15680171862954066917", 150_930, 10, 9),
    ]
    facts = Facts(read([STEP, *launched(890, 1), *events, *launched(151_100, 2)]))
    assert facts.idle.total_ns(COMPILE) == 149_900_000


def test_a_range_of_the_program_is_no_operator() -> None:
    assert between(op("training_step", 1_000, 5_000), us=5_010) == {"unrecorded": 5_000}


def test_the_first_call_of_an_operator_that_launches_loads_code() -> None:
    facts = Facts(read([STEP, *launched(890, 1), op("aten::arange", 1_000, 29_100), *launched(30_000, 2)]))
    assert facts.idle.total_ns(MODULE_LOAD) == 29_000_000


def test_a_copy_from_pageable_memory_is_made_on_the_host() -> None:
    facts = Facts(
        read(
            [
                *launched(890, 1),
                runtime("cudaMemcpyAsync", 1_000, 20_000, 2),
                span("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 20_990, 100, 7, device=0, stream=7)
                | {"args": {"device": 0, "stream": 7, "correlation": 2}},
            ]
        )
    )
    assert facts.idle.total_ns(HOST_COPY) == 19_990_000


def test_post_processing_is_no_input_work() -> None:
    frame = python("image_processing_owlv2.py(9): post_process_object_detection", 1_000, 4_000)
    assert between(frame, us=4_010) == {"post_processing": 4_000}


@pytest.mark.parametrize("steps", [1, 8])
def test_an_allocation_that_is_slow_once_is_start_up(steps: int) -> None:
    """cudaFree creates the handle of a library, or waits in every step."""
    events = [event for i in range(20) for event in launched(i * 100_000, i + 1)]
    for i in range(steps):
        events += [op("aten::mm", i * 100_000 + 1_000, 50_000), runtime("cudaFree", i * 100_000 + 1_010, 49_000, 0)]
    facts = Facts(read(events))
    assert facts.idle.total_ns(STARTUP if steps == 1 else ALLOCATION) == steps * 49_000_000


class TestLoader:
    def causes(self, *draws: float) -> dict[str, int]:
        """Causes of three loads of 50 ms in a step; the program draws numbers at some times."""
        events = [event for i in range(3) for event in launched(i * 100_000 + 90_000, i + 1)]
        events += [annotation(FETCH, i * 100_000 + 30_000, 50_000) for i in range(3)]
        events += [op("aten::random_", at, 10) for at in draws]
        facts = Facts(read([annotation("ProfilerStep#0", 0, 300_000), op("aten::empty", 0, 1), *events]))
        return {c.key: facts.idle.total_ns(c) for c in (LOADER_STARTUP, DATA_LOADING)}

    def test_the_first_batch_of_new_workers(self) -> None:
        assert self.causes(1_000) == {"loader_startup": 50_000_000, "data_loading": 100_000_000}

    def test_the_loader_draws_no_number_without_new_workers(self) -> None:
        assert self.causes() == {"loader_startup": 0, "data_loading": 150_000_000}

    def test_a_program_that_draws_in_each_step(self) -> None:
        draws = (1_000, 95_500, 195_500)
        assert self.causes(*draws) == {"loader_startup": 0, "data_loading": 150_000_000}


def test_while_a_thread_waits_for_the_engine_its_threads_are_asked() -> None:
    events = [
        *launched(890, 1),
        python("train.py(3): step", 500, 60_000),
        python("<built-in method run_backward of torch._C._EngineBase object at 0x7>", 900, 55_000),
        *launched(910, 2, 10, AUTOGRAD),
        op("aten::convolution_backward", 1_000, 50_000, AUTOGRAD),
        runtime("hipFree", 1_010, 45_000, 0, AUTOGRAD),
        *launched(56_000, 3),
    ]
    facts = Facts(read([*events, op("aten::convolution_backward", 70_000, 10, AUTOGRAD)]))
    assert facts.idle.total_ns(STARTUP) == 45_000_000  # the first call of its operator
    assert facts.idle.total_ns(LONG_PYTHON) < 10_000_000


@pytest.mark.parametrize(("steps", "python_us", "found"), [(1, 5_000, 0), (1, 500, 1), (3, 5_000, 1)])
def test_launching_is_not_the_limit_where_few_long_gaps_are(steps: int, python_us: float, found: int) -> None:
    machine = Machine(A100, with_stack=1)
    for _ in range(steps):
        with machine.step():
            for i in range(40):
                with machine.python("train.py(3): mask"):
                    machine.idle(python_us if i == 20 else 60)
                machine.launch(10)
            machine.synchronize()
    assert len(answer(LaunchBound, machine)[1]) == found


# On real traces.


def real(path: str) -> Facts:
    with (TRACES / path).open("rb") as stream:
        return Facts(read_trace(stream, path))


@over(FILES)
def test_causes_are_exclusive_and_dispatch_is_short(trace: AnalyzedTrace) -> None:
    facts = trace.facts
    gaps, amount = facts.gaps, facts.idle.amount
    assert (amount >= 0).all()
    assert np.array_equal(amount.sum(axis=1), gaps.end - gaps.start)
    long = gaps.starved_end - gaps.start >= LONG_NS
    assert (dispatch_amount(facts)[long] <= LONG_NS + LAUNCH_LATENCY_NS).all()


@pytest.mark.real_traces
@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("public/param_linear_2080ti.json.gz", "launch"),  # before the first step, cuBLAS creates its handles
        ("public/tl_ddp_resnet18_mi300.json.gz", "allocation"),  # 1,360 hipFree, in all steps
        ("public/part_a100_bs256.json.gz", "compile"),  # TorchScript, twice
        ("public/sustain_a5000_1.json.gz", "unrecorded"),
        ("public/aph_a4000_avg.json.gz", "unrecorded"),
        ("tracelens/perf_model/normalization/normalization_layer_test.json.gz", "module_load"),
        ("tracelens/h100/Falconsai_nsfw_image_detection/1016002.json.gz", "launch"),
    ],
)
def test_the_largest_cause_of_real_traces(path: str, cause: str) -> None:
    assert IDLE_CAUSES[int(real(path).idle.amount.sum(axis=0).argmax())].key == cause
