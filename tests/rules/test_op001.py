"""OP001 single-tensor-optimizer: use a fused or foreach optimizer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.cpu_steps import Events, cpu_answer, silent, the
from support.planted import PlantedFault

from traceopt.testing import A100
from traceopt.testing import events as build


class TestPlanted(PlantedFault):
    code = "OP001"


class TestOptimizer:
    """OP001."""

    def step(self, optimizer: str, operator: str, calls: int = 100) -> Callable[[float, int], Events]:
        def events(t: float, _: int) -> Events:
            yield build.annotation(f"Optimizer.step#{optimizer}.step", t + 5_000, 3_000)
            for index in range(calls):
                yield build.op(operator, t + 5_000 + 29 * index, 20)

        return events

    def test_one_parameter_after_the_other(self) -> None:
        finding, saved_us, places = the("OP001", self.step("AdamW", "aten::addcdiv_"))
        assert saved_us == pytest.approx(0.6 * 3_000, rel=0.05)
        assert (finding.title, places) == ("Use a fused optimizer", ["train.py:5"])

    def test_fused_or_small_or_without_a_fused_version(self) -> None:
        assert silent("OP001", self.step("AdamW", "aten::_fused_adamw_"))
        assert silent("OP001", self.step("AdamW", "aten::addcdiv_", calls=20))
        assert silent("OP001", self.step("RMSprop", "aten::addcdiv_"))

    def test_the_passes_of_a_closure_are_not_the_optimizers(self) -> None:
        def step(t: float, index: int) -> Events:
            yield from self.step("AdamW", "aten::mul")(t, index)
            yield build.op("autograd::engine::evaluate_function: MmBackward0", t + 7_950, 45)

        assert silent("OP001", step)

    def test_a_callback_is_not_the_optimizers(self) -> None:
        def step(t: float, index: int) -> Events:
            yield from self.step("AdamW", "aten::linalg_vector_norm")(t, index)
            yield build.python("torch/optim/adam.py(214): step", t + 5_001, 2_990)
            yield build.python("lightning/pytorch/precision.py(96): _wrap_closure", t + 5_002, 2_900)
            yield build.python("watch.py(8): log_norms", t + 5_003, 2_890)

        assert silent("OP001", step)


class TestCallsOfTheOptimizer:
    """A step may call the optimizer several times, as an update of PPO does."""

    def step(self, kernel: str, kernels: int, calls: int) -> Callable[[float, int], Events]:
        def events(t: float, index: int) -> Events:
            for call in range(calls):
                start, end = t + 10 + call * 9_000 / calls, 8_000 / calls
                yield build.annotation("Optimizer.step#AdamW.step", start, end)
                yield build.op("aten::mul", start, end)
                for number in range(kernels):
                    at, correlation = start + number * end / kernels, 1 + number + kernels * (call + calls * index)
                    yield build.runtime("cudaLaunchKernel", at, 5, correlation)
                    yield build.kernel(kernel, at + 10, 2, correlation, stream=7)

        return events

    def answer(self, kernel: str, kernels: int, calls: int = 1) -> str:
        check, found = cpu_answer("OP001", self.step(kernel, kernels, calls), deviceProperties=[A100])
        return found[0].why if found else f"{check.status}: {check.reason}"

    def test_fused_kernels_are_fused_however_often_the_optimizer_steps(self) -> None:
        fused = "multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4>>"
        assert self.answer(fused, kernels=4, calls=40) == "passed: Optimizer.step launches no unfused kernels."

    def test_few_kernels_for_each_call_are_no_loop_over_parameters(self) -> None:
        foreach = "multi_tensor_apply_kernel<TensorListMetadata<4>, BinaryOpListAlphaFunctor<float, 2>>"
        assert self.answer(foreach, kernels=12, calls=10).startswith(
            "passed: Optimizer.step launches 120 unfused kernels in 10 calls per step"
        )

    def test_a_loop_over_parameters_in_each_of_two_calls(self) -> None:
        why = self.answer("vectorized_elementwise_kernel<4, MulFunctor<float>>", kernels=100, calls=2)
        assert why.startswith("Optimizer.step launches 200 kernels in 2 calls per step with a median of 2.0 µs")
