"""CV003 cudnn-benchmark-off: turn on cudnn.benchmark."""

from __future__ import annotations

import pytest
from support.recorded_facts import answer, finding, generated, reason
from support.short_steps import launched, steps

from traceopt.testing import events as build


class TestCudnnBenchmark:
    """CV003."""

    def test_fires_on_fixed_shapes_with_benchmark_off(self) -> None:
        found = finding(generated("layout_conversion", fixed=True, cudnn_benchmark=False), "CV003")
        assert found.impact == "info"
        assert found.saving is None
        assert "cnn.py:29" in map(str, found.locations)

    def test_silent_with_benchmark_on(self) -> None:
        assert "is on" in reason(generated("layout_conversion", cudnn_benchmark=True), "CV003", "passed")

    def test_deterministic_runs_have_no_choice(self) -> None:
        change = {"environment.deterministic": True}
        facts = generated("layout_conversion", cudnn_benchmark=False, change=change)
        assert "cannot choose" in reason(facts, "CV003", "not_applicable")

    @pytest.mark.parametrize(("second", "found"), [(64, 1), (65, 0)])
    def test_shapes_must_be_those_of_every_step(self, second: int, found: int) -> None:
        def part(batch: int, correlation: int) -> list[build.Json]:
            dims = {"Input Dims": [[batch, 3, 8, 8], [3, 3, 3, 3]], "Input type": ["float", "float"]}
            return [
                build.op("aten::convolution", 90, 50, **dims),
                *launched(correlation, 8_000, "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32"),
            ]

        own = {"environment": {"cudnn_benchmark": False}}
        facts = steps(part(64, 1), part(second, 2), part(64, 3), traceopt=own)
        assert facts.gpu.kind.among("conv").any()
        assert len(answer(facts, "CV003")[1]) == found
