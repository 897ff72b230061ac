"""LB002 launch-bound: a graph, a decoder, fewer launches; on a CPU, loops of tiny operators (test_cpu_only.py)."""

from __future__ import annotations

from contextlib import nullcontext
from statistics import median

import pytest
from support.findings import found, saving_of
from support.jobs import facts_with
from support.planted import PlantedFault
from support.traces import GetExample

from traceopt.analyzer.facts import Facts
from traceopt.result.finding import Finding
from traceopt.result.words.effort_and_risk import Risk
from traceopt.result.words.message import plain
from traceopt.rules.catalogue.lb002_launch_bound import LaunchBound
from traceopt.rules.fixes.advice import batch_size
from traceopt.rules.savings.starvation import dispatch_ns
from traceopt.testing import Machine

SMALL = {"batch": 1, "tokens": 512, "hidden": 512, "vocabulary": 8192, "input_bytes": 2**16}
GRAPH = "Replay the forward and backward passes as CUDA graphs"


class TestPlanted(PlantedFault):
    code = "LB002"


def the(facts: Facts) -> Finding:
    (finding,) = found("LB002", facts)
    return finding


def layer_of_experts(experts: int, products: int = 2) -> Machine:
    """Steps whose layer picks the tokens of one expert after the other and multiplies them: kernels of 3 us."""
    machine = Machine()
    for _ in range(4):
        with machine.step(), machine.python("train.py(8): step"), machine.python("model.py(21): forward"):
            for _ in range(experts):
                machine.work(3, "aten::nonzero")
                machine.synchronize()
                for _ in range(products):
                    machine.work(20, "aten::mm")
                    machine.launch(3)
    return machine


class TestExperts:
    def test_one_after_the_other_are_grouped(self) -> None:
        finding = the(layer_of_experts(64).facts())
        assert finding.title == "Multiply all experts in one grouped matmul instead of a loop"
        assert "grouped_mm" in finding.fix.text

    @pytest.mark.parametrize(("experts", "products"), [(2, 60), (64, 0)], ids=["two masks", "no matmuls"])
    def test_other_masks_are_no_experts(self, experts: int, products: int) -> None:
        facts = layer_of_experts(experts, products).facts()
        assert not any("experts" in one.title for one in found("LB002", facts))


class TestRoundsThatReadValues:
    """A solver reads a value after a few kernels, a decoder after those of a token."""

    def rounds(self, kernels: int) -> Finding:
        machine = Machine()
        for _ in range(3):
            with machine.step(), machine.python("train.py(8): rollout"):
                for _ in range(6):
                    for _ in range(kernels):
                        machine.work(20, "aten::mul")
                        machine.launch(3)
                    with machine.operator("aten::item"), machine.operator("aten::_local_scalar_dense"):
                        machine.copy_to_host(2)
        return the(machine.facts())

    @pytest.mark.parametrize("kernels", [4, 20])
    def test_of_few_kernels_wait_for_each_other(self, kernels: int) -> None:
        finding = self.rounds(kernels)
        assert finding.title == "Run several rounds as one batch, and read their values together"
        assert finding.confidence == "low"

    def test_of_many_kernels_gain_by_graphs(self) -> None:
        assert self.rounds(150).title == LaunchBound.title


class TestGraph:
    def test_of_steps_that_launch_the_same(self) -> None:
        finding = the(facts_with("launch_bound"))
        assert finding.title == GRAPH
        assert "100% of the steps launch the same" in finding.why
        assert finding.risk_words == "Shapes must not change"
        assert any(row.what.startswith("Waiting for aten::") for row in finding.evidence)

    def test_what_blocks_a_capture(self) -> None:
        free, blocked = the(facts_with("launch_bound")), the(facts_with(**SMALL, item="forward"))
        assert blocked.title == LaunchBound.title
        assert "One CUDA graph cannot hold all of it: the step reads single values from the GPU" in blocked.fix.text
        assert (
            "torch.compile splits the model where it has to, and makes a CUDA graph of each part." in blocked.fix.text
        )
        assert blocked.confidence == "medium"
        assert saving_of(blocked).share < saving_of(free).share
        assert "train.py:88" in [str(row.location) for row in blocked.evidence]

    def test_a_host_that_launches_fast_enough_leaves_no_wait(self, example: GetExample) -> None:
        """With 85% less launch time the GPU is the limit, so all of its wait goes and not 85% of it."""
        planted = example("launch_bound").planted
        gain_us = median(planted.step_us) - median(planted.fixed_step_us)
        assert saving_of(the(facts_with("launch_bound"))).est_us == pytest.approx(gain_us, rel=0.03)

    def test_steps_that_launch_other_kernels(self, example: GetExample) -> None:
        facts = example("launch_bound").facts
        assert facts.repetition.same_share == 1
        other = facts_with(**SMALL, load_code_us=2_000, every=2, steps=4, route="nonzero")
        assert other.repetition.same_share == 1  # the same kernels whatever the host does between
        trace = other.trace
        trace.gpu.grid[5, 0] += 1  # one kernel of one step has another grid
        changed = Facts(trace).repetition
        assert changed.same_share == 0.75

    def test_needs_steps_to_compare(self) -> None:
        assert the(facts_with("launch_bound", steps=2)).title == LaunchBound.title

    def test_replayed_steps_have_nothing_to_win(self, example: GetExample) -> None:
        assert found("LB002", example("cuda_graph").facts) == []


class TestFewerLaunches:
    def test_whatever_is_launched_faster_the_whole_wait_goes(self) -> None:
        """Without 70 or 85% of the launch time, kernels take longer than launches."""

        def machine(steps: int) -> Facts:
            machine = Machine()
            for _ in range(steps):
                with machine.step():
                    for _ in range(40):
                        machine.idle(20)
                        machine.launch(15)
                    machine.synchronize()
            return machine.facts()

        few, graph = machine(2), machine(5)
        assert saving_of(the(few)).est_us == pytest.approx(saving_of(the(graph)).est_us, rel=0.02)
        assert saving_of(the(few)).est_us > 0.85 * dispatch_ns(few) / 1e3

    @pytest.mark.parametrize(
        ("frames", "uneven", "confidence"),
        [(False, False, "high"), (True, False, "medium"), (False, True, "medium"), (True, True, "low")],
    )
    def test_frames_and_uneven_steps_make_launch_waits_less_sure(
        self, frames: bool, uneven: bool, confidence: str
    ) -> None:
        machine = Machine(**({"with_stack": 1} if frames else {}))
        for us in (15, 10, 8.8) if uneven else (10, 10, 10):
            with machine.step(), machine.python("train.py(3): loop") if frames else nullcontext():
                for _ in range(40):
                    machine.idle(us)
                    machine.launch(2)
                machine.synchronize()
        assert the(machine.facts()).confidence == confidence

    def test_a_larger_batch_has_a_risk(self) -> None:
        assert the(facts_with("launch_bound", steps=2)).risk_words == "A larger batch may change convergence"

    def test_no_larger_batch_where_memory_is_full(self, monkeypatch: pytest.MonkeyPatch) -> None:
        facts = facts_with("launch_bound", steps=2)
        monkeypatch.setattr(batch_size, "peak_share", lambda _: 0.96)
        monkeypatch.setattr(Facts, "memory", object())
        finding = the(facts)
        assert "batch" not in f"{finding.title} {finding.fix.text}"
        assert finding.risk is Risk.NONE

    def test_compiling_the_model_does_not_speed_up_the_optimizer(self, example: GetExample) -> None:
        facts = example("single_tensor_optimizer").facts
        assert dispatch_ns(facts) > 0.2 * facts.step_ns
        assert found("LB002", facts) == []
        assert "launches in the forward and backward passes for 0.2% " in plain(LaunchBound().passed(facts))


class TestDecoding:
    def test_few_rows_are_a_decoder(self) -> None:
        finding = the(facts_with("decode"))
        assert finding.title == "Use CUDA graphs for decoding, or an inference engine"
        assert "which is typical of decoding" in finding.why

    def test_autograd_that_nobody_uses_is_told(self) -> None:
        assert "83 autograd nodes that nothing uses" in the(facts_with("decode", inference="on")).fix.text
        assert "autograd" not in the(facts_with("decode", inference="off")).fix.text

    def test_a_prompt_is_no_decoding(self) -> None:
        assert "decoding" not in the(facts_with("decode", tokens=64)).title
