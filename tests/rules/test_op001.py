"""OP001 single-tensor-optimizer: use a fused or foreach optimizer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.cpu_steps import Events, silent, the
from support.planted import PlantedFault

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
