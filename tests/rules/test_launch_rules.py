"""Launch and inference rules beyond their planted traces: what blocks a graph, what happens once, what trains."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest
from support.findings import RULES, found, saving_of
from support.jobs import facts_with

from traceopt.analyzer.facts import Facts
from traceopt.result.message import plain
from traceopt.rules.savings.starvation import dispatch_ns
from traceopt.testing import Machine

if TYPE_CHECKING:
    from conftest import GetExample


SMALL = {"batch": 1, "tokens": 512, "hidden": 512, "vocabulary": 8192, "input_bytes": 2**16}


STEADY = ("LB004", "LB005")


@cache
class TestGraphCandidate:
    def test_what_blocks_a_capture(self) -> None:
        (free,) = found("LB002", facts_with("launch_bound"))
        (blocked,) = found("LB002", facts_with(**SMALL, item="forward"))
        assert "take out" not in free.why
        assert "reads single values from the GPU" in blocked.why
        assert blocked.confidence == "medium"
        assert saving_of(blocked).share < saving_of(free).share
        assert "train.py:88" in [str(row.location) for row in blocked.evidence]
        (launches,) = found("LB001", facts_with(**SMALL, item="forward"))
        assert "One CUDA graph cannot hold all of it: the step reads single values from the GPU" in launches.fix.text
        assert launches.confidence == "medium"

    def test_a_host_that_launches_fast_enough_leaves_no_wait(self, example: GetExample) -> None:
        """With 85% less launch time the GPU is the limit, so all of its wait goes and not 85% of it."""
        (finding,) = found("LB002", facts_with("launch_bound"))
        planted = example("launch_bound").planted
        gain_us = median(planted.step_us) - median(planted.fixed_step_us)
        assert saving_of(finding).est_us == pytest.approx(gain_us, rel=0.03)

    def test_both_prices_of_one_wait_are_alike(self) -> None:
        """Without 70 or 85% of the launch time, kernels take longer than launches: the whole wait goes in both."""
        machine = Machine()
        for _ in range(5):
            with machine.step():
                for _ in range(40):
                    machine.idle(20)
                    machine.launch(15)
                machine.synchronize()
        facts = machine.facts()
        one, other = (saving_of(finding).est_us for code in ("LB001", "LB002") for finding in found(code, facts))
        assert one == pytest.approx(other, rel=0.02)
        assert one > 0.85 * dispatch_ns(facts) / 1e3

    def test_a_graph_of_the_passes_leaves_the_optimizer_out(self, example: GetExample) -> None:
        facts = example("single_tensor_optimizer").facts
        assert dispatch_ns(facts) > 0.2 * facts.step_ns
        assert found("LB002", facts) == []
        assert "waits for launches in the forward and backward passes for 0.3% " in plain(RULES["LB002"].passed(facts))

    def test_needs_steps_to_compare(self) -> None:
        assert "Too few" in (RULES["LB002"].applies(facts_with(**SMALL, steps=2)) or "")

    def test_steps_that_launch_other_kernels(self, example: GetExample) -> None:
        facts = example("launch_bound").facts
        assert facts.repetition.same_share == 1
        other = facts_with(**SMALL, load_code_us=2_000, every=2, steps=4, route="nonzero")
        assert other.repetition.same_share == 1  # the same kernels whatever the host does between
        trace = other.trace
        trace.gpu.grid[other.gpu.rows[5], 0] += 1  # one kernel of one step has another grid
        changed = Facts(trace).repetition
        assert changed.same_share == 0.75
        assert changed.same_names_share == 1

    def test_replayed_steps_have_nothing_to_win(self, example: GetExample) -> None:
        assert "already" in (RULES["LB002"].applies(example("cuda_graph").facts) or "")


@pytest.mark.parametrize("code", STEADY)
class TestOnceOnlyWork:
    def test_a_one_off_has_no_saving(self, code: str) -> None:
        job = {"compile_us": 60_000} if code == "LB004" else {"load_code_us": 60_000}
        (finding,) = found(code, facts_with(**job, every=5, steps=5))
        assert finding.saving is None
        assert finding.confidence == "low"
        assert "in 1 of 5 steps" in finding.why

    def test_the_first_step_is_a_start(self, code: str) -> None:
        job = {"compile_us": 60_000} if code == "LB004" else {"load_code_us": 60_000}
        assert found(code, facts_with(**job, every=4, steps=4)) == []

    def test_hidden_behind_a_busy_gpu(self, code: str) -> None:
        job = {"compile_us": 2_000} if code == "LB004" else {"load_code_us": 2_000}
        assert found(code, facts_with(**job, every=2, steps=6)) == []


def test_recorded_reasons_of_dynamo_are_evidence() -> None:
    facts = facts_with("recompilation")
    again = {"id": "0/1", "co_name": "forward", "recompile_reason": "0/0: L['x'].size()[0] == 4"}
    facts.trace.meta.header["traceopt"] = {"dynamo": {"compilations": [again] * 7, "graph_break": "?"}}
    (finding,) = found("LB004", Facts(facts.trace))
    assert any("size()[0] == 4" in row.what and "7 recompilations" in (row.detail or "") for row in finding.evidence)
    assert "Mark the dimension" in finding.fix.text


class TestInference:
    def test_autograd_that_nobody_uses(self) -> None:
        (finding,) = found("IN001", facts_with("decode", inference="on"))
        assert "83 autograd nodes" in finding.why
        assert saving_of(finding).low_us == 0

    @pytest.mark.parametrize("job", [{"inference": "off"}, {"inference": "on", "tokens": 4096, "steps": 3}])
    def test_silent_without_it_and_under_a_busy_gpu(self, job: dict[str, Any]) -> None:
        assert found("IN001", facts_with("decode", **job)) == []

    @pytest.mark.parametrize("code", ["IN001", "IN002"])
    def test_training_is_no_inference(self, example: GetExample, code: str) -> None:
        assert RULES[code].applies(example("launch_bound").facts) == "This run trains."

    def test_a_prompt_is_no_decoding(self) -> None:
        assert found("IN002", facts_with("decode", tokens=64)) == []


def test_compiling_the_model_does_not_speed_up_the_optimizer(example: GetExample) -> None:
    facts = example("single_tensor_optimizer").facts
    assert dispatch_ns(facts) > 0.2 * facts.step_ns
    assert found("LB001", facts) == []
    assert "launches in the forward and backward passes for 0.3% " in plain(RULES["LB001"].passed(facts))


@pytest.mark.parametrize(
    ("frames", "uneven", "confidence"),
    [(False, False, "high"), (True, False, "medium"), (False, True, "medium"), (True, True, "low")],
)
def test_frames_and_uneven_steps_make_launch_waits_less_sure(frames: bool, uneven: bool, confidence: str) -> None:
    machine = Machine(**({"with_stack": 1} if frames else {}))
    for us in (15, 10, 8.8) if uneven else (10, 10, 10):
        with machine.step(), machine.python("train.py(3): loop") if frames else nullcontext():
            for _ in range(40):
                machine.idle(us)
                machine.launch(2)
            machine.synchronize()
    (finding,) = found("LB001", machine.facts())
    assert finding.confidence == confidence


def test_a_larger_batch_has_a_risk(example: GetExample) -> None:
    (finding,) = found("LB001", example("launch_bound").facts)
    assert finding.risk == "A larger batch may change convergence"
