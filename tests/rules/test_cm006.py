"""CM006 sync-every-micro-step: reduce gradients in the last micro-step only."""

from __future__ import annotations

import pytest
from support.cpu_steps import Events, silent, the
from support.findings import found, saving_of
from support.gpu_steps import NCCL, STEP_US, steps
from support.planted import PlantedFault

from traceopt.analyzer.facts import Facts
from traceopt.rules.engine import HIDDEN, prepare, run_rules
from traceopt.rules.registry import load_rules
from traceopt.testing import events as build
from traceopt.testing.events import Json, annotation, document, kernel, op, read, runtime


class TestPlanted(PlantedFault):
    code = "CM006"


class TestCollectives:
    """With gloo, which runs on a thread of its own."""

    def test_a_reduction_in_each_micro_step(self) -> None:
        """CM006."""

        def step(t: float, _: int, last_only: bool = False) -> Events:
            for micro in (0, 4_000):
                yield build.annotation("DistributedDataParallel.forward", t + micro, 900)
                yield build.op("aten::addmm", t + micro, 900)
                yield build.op("autograd::engine::evaluate_function: AddmmBackward0", t + micro + 1_000, 1_000)
                if micro or not last_only:
                    yield build.op("c10d::allreduce_", t + micro + 1_500, 10)
                    yield build.annotation("gloo:all_reduce", t + micro + 1_520, 1_480, 7)
            yield build.annotation("Optimizer.step#SGD.step", t + 8_000, 1_000)

        finding, saved_us, places = the("CM006", step)
        assert saved_us == pytest.approx(0.95 * 1_000, rel=0.06)
        assert finding.saving is not None
        assert finding.saving.high_us == pytest.approx(1_500, rel=0.02), "the gloo thread shares the model's cores"
        assert places == ["train.py:5"]
        assert silent("CM006", lambda t, index: step(t, index, last_only=True))

    def test_copies_into_buckets_go_with_the_reductions(self) -> None:
        """CM006 on two micro-steps: 40 copies of 10 us in each backward pass, and 20 back after the reduction."""

        def step(t: float, _: int) -> Events:
            for micro in (0, 4_000):
                at = t + micro
                yield build.annotation("DistributedDataParallel.forward", at, 900)
                yield build.op("aten::addmm", at, 900)
                yield build.op("autograd::engine::evaluate_function: AddmmBackward0", at + 1_000, 1_000)
                for index in range(40):
                    yield build.op("torch::distributed::reducer::mul_out", at + 1_000 + 12 * index, 10)
                yield build.op("c10d::allreduce_", at + 1_990, 10)
                yield build.annotation("gloo:all_reduce", at + 2_000, 1_000, 7)
                for index in range(20):
                    yield build.op("torch.distributed.ddp.reducer::copy_bucket_to_grad", at + 3_000 + 10 * index, 10)
            yield build.annotation("Optimizer.step#SGD.step", t + 8_000, 1_000)

        finding, saved_us, _ = the("CM006", step)
        assert saved_us == pytest.approx(0.95 * (1_010 + 400 + 200), rel=0.01)
        assert "The host spends another 0.60 ms on them" in finding.why


NODE = "autograd::engine::evaluate_function: MmBackward0"


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
