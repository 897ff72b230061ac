"""OP004 optimizer-on-cpu: keep the optimizer's states on the GPU."""

from __future__ import annotations

import pytest

from traceopt.rules.catalogue.lb007_cpu_operator import CpuOperator
from traceopt.rules.catalogue.op004_optimizer_on_cpu import OptimizerOnCpu
from traceopt.testing import Machine, assert_finds, assert_silent


def training(update: str) -> Machine:
    """Passes of 4 ms, a copy of the gradients of 1 ms, and an update of 10 ms on the host or of 1 ms on the GPU."""
    machine = Machine({"id": 0, "name": "NVIDIA A100-SXM4-40GB"})
    for _ in range(4):
        with machine.step(), machine.python("train.py(8): train"):
            with machine.annotate("autograd::engine::evaluate_function: MmBackward0"):
                machine.launch(4_000)
            machine.copy_to_host(1_000)
            with machine.annotate("Optimizer.step#DeepSpeedCPUAdam.step"), machine.python("cpu_adam.py(104): step"):
                if update == "on the GPU":
                    machine.launch(1_000)
                elif update == "by operators":
                    machine.work(10_000, "aten::_fused_adamw_")
                else:
                    machine.idle(10_000)
            machine.launch(20)
            machine.synchronize()
    return machine


@pytest.mark.parametrize("update", ["by an extension", "by operators"])
def test_fires_on_the_update_with_its_copies(update: str) -> None:
    finding = assert_finds(OptimizerOnCpu, training(update), saving_us=0.9 * 11_000)
    assert "The GPU waits 10.0 ms" in finding.why
    assert "before and after it take another 1.0 ms" in finding.why


def test_no_other_rule_is_about_its_operators() -> None:
    assert_silent(CpuOperator, training("by operators"))


def test_silent_on_an_update_on_the_gpu() -> None:
    assert_silent(OptimizerOnCpu, training("on the GPU"))
