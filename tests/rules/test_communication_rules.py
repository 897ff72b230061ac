"""CM006, CM008 and CM009 beyond their planted traces: what is no accumulation, no DataParallel, no slowdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from test_mm_ef import RULES, found, saving_of

from traceopt.analyzer.facts import Facts
from traceopt.rules.engine import HIDDEN, prepare, run_rules
from traceopt.rules.registry import load_rules
from traceopt.testing.events import Json, annotation, document, kernel, op, python, read, runtime, span

if TYPE_CHECKING:
    from conftest import GetExample

STEP_US = 10_000.0
NODE = "autograd::engine::evaluate_function: MmBackward0"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"


def steps(*parts: list[Json], count: int = 3) -> Facts:
    """The same events in every step, moved to its place."""
    events: list[Json] = []
    for index in range(count):
        shift = index * STEP_US
        events.append(annotation(f"ProfilerStep#{index}", shift, STEP_US))
        for event in (event for part in parts for event in part):
            args = dict(event["args"])
            if "correlation" in args:
                args["correlation"] += 1_000 * index
            events.append({**event, "ts": event["ts"] + shift, "args": args})
    return Facts(read(document(events)))


def micro_step(at: float, number: int, elements: int = 1 << 20) -> list[Json]:
    """A DDP forward, a backward pass of 500 us, and an exposed all-reduce of a millisecond that it launches; the host
    waits for it.
    """
    sizes = {"In msg nelems": elements, "dtype": "Float", "Group size": 2, "Collective name": "allreduce"}
    return [
        annotation("DistributedDataParallel.forward", at, 100),
        op("aten::mm", at + 10, 50),
        op(NODE, at + 200, 500, 2),
        runtime("cudaLaunchKernelExC", at + 600, 5, number, 2),
        kernel(NCCL, at + 710, 1_000, number, stream=31, **sizes),
        runtime("cudaDeviceSynchronize", at + 710, 1_004, number + 50),
    ]


def update(at: float) -> list[Json]:
    return [annotation("Optimizer.step#AdamW.step", at, 100)]


class TestMicroSteps:
    def test_all_but_the_last_are_spare(self) -> None:
        facts = steps(micro_step(100, 1), micro_step(2_100, 2), micro_step(4_100, 3), update(6_500))
        (finding,) = found("CM006", facts)
        assert saving_of(finding).est_us == pytest.approx(0.95 * 2_000, rel=0.02)
        assert finding.shares_cause_with == ["CM001"]

    def test_nothing_that_the_step_does_not_wait_for(self) -> None:
        """Without the waits the host alone is the limit: the step is no shorter without the reductions."""
        waiting = [*micro_step(100, 1), *micro_step(2_100, 2)]
        events = [event for event in waiting if event["name"] != "cudaDeviceSynchronize"]
        facts = steps(events, update(6_500))
        outcome = run_rules(prepare(load_rules(None), select_codes=["CM006"]), facts, debug=True)
        assert outcome.findings == []
        [check] = [check for check in outcome.checks if check.code == "CM006"]
        assert (check.status, check.reason) == ("passed", HIDDEN)

    def test_one_pass_an_update(self) -> None:
        assert found("CM006", steps(micro_step(100, 1), update(3_000), micro_step(4_100, 2), update(7_000))) == []

    def test_two_networks_of_their_own(self) -> None:
        """Two backward passes before one update that reduce different gradients."""
        assert found("CM006", steps(micro_step(100, 1), micro_step(2_100, 2, elements=5 << 20), update(6_500))) == []

    def test_micro_steps_over_several_profiler_steps(self) -> None:
        """The optimizer steps in the last of four; the reductions before are spare all the same."""
        facts = steps(micro_step(100, 1), count=4)
        events = annotation("Optimizer.step#AdamW.step", 3 * STEP_US + 6_000, 100)
        again = [annotation(f"ProfilerStep#{i}", i * STEP_US, STEP_US) for i in range(4)]
        moved = [{**e, "ts": e["ts"] + i * STEP_US} for i in range(4) for e in micro_step(100, i + 1)]
        assert found("CM006", facts) == []  # without an update there is nothing to say
        (finding,) = found("CM006", Facts(read(document([*again, *moved, events]))))
        assert finding.saving is not None


def parallel_step(frames: bool) -> Iterator[Json]:
    """DataParallel on two GPUs: 2 ms of copying before a kernel on each."""
    if frames:
        yield python("torch/nn/parallel/data_parallel.py(158): forward", 100, 5_000)
        yield python("torch/nn/parallel/replicate.py(91): replicate", 200, 2_000)
    else:
        yield op("Broadcast", 200, 2_000)
    for number, device in ((1, 0), (2, 1)):
        yield runtime("cudaLaunchKernel", 2_300 + number, 1, number)
        yield kernel("ampere_sgemm_128x64_tn", 2_310, 500, number, device=device)


class TestDataParallel:
    @pytest.mark.parametrize("frames", [True, False])
    def test_fires(self, frames: bool) -> None:
        (finding,) = found("CM008", steps(list(parallel_step(frames))))
        assert "2 GPUs" in finding.why
        assert saving_of(finding).est_us == pytest.approx(0.95 * 2_000, rel=0.02)

    def test_one_gpu_or_ddp(self) -> None:
        one = [event for event in parallel_step(frames=True) if event["args"].get("device") != 1]
        assert found("CM008", steps(one)) == []
        ddp = python("torch/nn/parallel/scatter_gather.py(21): _is_namedtuple", 100, 500)
        both = [event for event in parallel_step(frames=True) if event["cat"] != "python_function"]
        assert found("CM008", steps([*both, ddp])) == []


class TestOverlapTax:
    def test_the_slowdown_is_that_of_the_time_beside(self, example: GetExample) -> None:
        (finding,) = found("CM009", example("overlap_tax").facts)
        assert "take 2.00 times as long" in finding.why
        assert saving_of(finding).low_us == 0

    def test_silent_on_the_twin_and_where_kernels_differ(self, example: GetExample) -> None:
        assert found("CM009", example("overlap_tax", fixed=True).facts) == []
        assert found("CM009", example("exposed_allreduce").facts) == []

    def test_products_of_unknown_size_are_not_compared(self) -> None:
        """The same name and grid, alone and beside a collective, but of another depth."""
        alone = [kernel("ampere_sgemm_128x64_tn", 100 + 200 * i, 100, i + 1, grid=[4, 4, 1]) for i in range(4)]
        beside = [kernel("ampere_sgemm_128x64_tn", 4_100 + 900 * i, 800, i + 9, grid=[4, 4, 1]) for i in range(4)]
        comm = kernel(NCCL, 4_000, 5_000, 30, stream=31)
        assert found("CM009", steps([*alone, *beside, comm])) == []
        copy = [span("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 20, 5, 7, device=0, stream=7, bytes=8)]
        assert RULES["CM009"].applies(steps(alone, copy)) == "No collectives in this trace."
