"""LB003 unfused-elementwise: fuse pointwise kernels with torch.compile."""

from __future__ import annotations

import pytest
from support.findings import outcome_of
from support.inference import COMPILED_REGION, advice
from support.planted import PlantedFault

from traceopt.rules.catalogue.lb003_unfused_elementwise import UnfusedElementwise
from traceopt.testing import A100, Machine, answer, assert_finds, facts_of


class TestPlanted(PlantedFault):
    code = "LB003"


EAGER = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"


def pointwise(region: str, frame: str = "serve.py(3): loop") -> Machine:
    """Five steps of pointwise kernels alone."""
    machine = Machine(A100, with_stack=1)
    for _ in range(5):
        with machine.step(), machine.python(frame), machine.annotate(region):
            for _ in range(20):
                machine.launch(100, name=EAGER)
            machine.synchronize()
    return machine


def test_lb003_leaves_the_kernels_of_compiled_code_alone() -> None:
    assert answer(UnfusedElementwise, pointwise(COMPILED_REGION))[1] == []
    assert "torch.compile(model)" in advice(assert_finds(UnfusedElementwise, pointwise("forward")))


@pytest.mark.parametrize(
    ("frames", "softmax", "fuses_the_loss"),
    [(4_000, "aten::_log_softmax", True), (40, "aten::_log_softmax", False), (4_000, "aten::_softmax", False)],
)
def test_what_is_done_to_one_large_tensor_wants_a_fused_loss(frames: int, softmax: str, fuses_the_loss: bool) -> None:
    """As the joint network of a transducer, whose loss is not PyTorch's. Small tensors fit into caches, and a softmax
    without the logarithm is no loss: attention, gates of experts.
    """
    machine = Machine(A100)
    logits = {"Input Dims": [[16, frames, 100]], "Input type": ["float"]}
    for _ in range(5):
        with machine.step():
            for operator, kernel in {
                "aten::copy_": EAGER,
                softmax: "cunn_SoftMaxForward<4, float>",
            }.items():
                with machine.operator(operator, **logits):
                    machine.launch(3_000, name=kernel)
            with machine.annotate("Optimizer.step#SGD.step"):
                machine.synchronize()
    finding = assert_finds(UnfusedElementwise, machine)
    assert ("Use a loss that fuses" in finding.title) is fuses_the_loss


def test_the_loss_over_a_large_vocabulary_is_no_chain() -> None:
    """EF023 is about it, so that the time of its kernels is promised once."""
    logits = {"Input Dims": [[512, 32_000]], "Input type": ["float"]}
    machine = Machine(A100)
    for _ in range(5):
        with machine.step():
            for name in ("aten::to", "aten::cross_entropy_loss"):
                with machine.operator(name, **logits):
                    machine.launch(3_000, name=EAGER)
            with machine.annotate("Optimizer.step#SGD.step"):
                machine.synchronize()
    facts = machine.facts()
    assert facts.large_logits is not None
    assert not facts.chains.count


def test_lb003_names_the_engine() -> None:
    finding = assert_finds(UnfusedElementwise, pointwise("forward", "sglang/srt/managers/scheduler.py(3): run_batch"))
    assert "--enable-torch-compile" in finding.fix.text
    assert finding.fix.code is None


def test_no_compiler_takes_what_is_differentiated_twice() -> None:
    found = assert_finds(UnfusedElementwise, pointwise("TanhBackwardBackward0"))
    assert (found.saving, found.fix.edits, found.fix.code) == (None, [], None)
    assert "differentiated twice" in found.fix.text


def test_no_compiler_makes_code_for_a_gpu_older_than_volta() -> None:
    machine = pointwise("forward")
    machine.metadata["deviceProperties"] = [{"id": 0, "name": "Tesla P100", "computeMajor": 6, "computeMinor": 0}]
    found = outcome_of(facts_of(machine)).findings
    assert "LB003" in {finding.code for finding in found}
    assert not [finding for finding in found if "torch.compile" in f"{finding.title} {advice(finding)}"]
