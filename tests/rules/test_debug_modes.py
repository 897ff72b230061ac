"""Switches that slow every step down: blocking launches, debug modes, cuDNN's search."""

from __future__ import annotations

from typing import Any

import pytest
from recorded_facts import NOT_RECORDED, answer, finding, generated, reason

from traceopt.analyzer.facts import Facts
from traceopt.testing import events as build


class TestLaunchBlocking:
    """HS006."""

    def test_the_trace_alone_shows_it(self) -> None:
        found = finding(generated("launch_blocking", metadata=False), "HS006")
        assert found.why.startswith("Launches block until the kernel has finished for 100% of kernel time")

    def test_a_variable_that_did_nothing_is_no_finding(self) -> None:
        facts = generated("healthy", change={"environment.variables": {"CUDA_LAUNCH_BLOCKING": "1"}})
        assert answer(facts, "HS006")[1] == []

    @pytest.mark.parametrize(("value", "count"), [("1", 1), ("0", 0)])
    def test_where_no_kernel_is_long_the_variable_decides(self, value: str, count: int) -> None:
        facts = launches({"environment": {"variables": {"CUDA_LAUNCH_BLOCKING": value}}})
        assert [found.saving for found in answer(facts, "HS006")[1]] == [None] * count


A100 = {
    "id": 0,
    "name": "NVIDIA A100-SXM4-40GB",
    "totalGlobalMem": 42_297_524_224,
    "computeMajor": 8,
    "computeMinor": 0,
}


def steps(*parts: list[build.Json], **metadata: Any) -> Facts:
    """A step of 10 ms for each part, whose times count from the step's start."""
    events = []
    for index, part in enumerate(parts):
        start = index * 10_000.0
        events.append(build.annotation(f"ProfilerStep#{index}", start, 10_000.0))
        events += [{**event, "ts": event["ts"] + start} for event in part]
    return Facts(build.read(build.document(events, deviceProperties=[A100], **metadata)))


def launched(correlation: int, kernel_us: float = 9.0, name: str = "gemm") -> list[build.Json]:
    return [
        build.runtime("cudaLaunchKernel", 100, 5, correlation),
        build.kernel(name, 106, kernel_us, correlation),
    ]


def launches(own: dict[str, Any]) -> Facts:
    return steps(launched(1), launched(2), launched(3), traceopt=own)


class TestDebugModes:
    """LG004."""

    @staticmethod
    def part(*checks: str, parent: str = "autograd::engine::evaluate_function: MmBackward0") -> list[build.Json]:
        return [
            build.op(parent, 1_000, 900),
            *(build.op(name, 1_100 + 200 * index, 150) for index, name in enumerate(checks)),
        ]

    def test_nan_checks_below_the_nodes_of_the_backward(self) -> None:
        part = self.part("MmBackward0", "aten::isnan", "aten::_is_any_true", "aten::item")
        found = finding(steps(part, part, part), "LG004")
        assert found.saving is not None
        assert found.saving.est_us == 3 * 150
        assert "set_detect_anomaly" in str(found.fix.code)

    def test_a_node_that_reads_a_number_is_no_check(self) -> None:
        part = self.part("MmBackward0", "aten::any", "aten::item")
        assert NOT_RECORDED in reason(steps(part, part, part), "LG004", "not_checked")

    def test_a_script_that_looks_for_nan_itself_is_no_check(self) -> None:
        part = self.part("aten::isnan", "aten::any", "aten::item", parent="aten::linear")
        assert NOT_RECORDED in reason(steps(part, part, part), "LG004", "not_checked")

    def test_new_tensors_that_are_filled(self) -> None:
        part = self.part("aten::fill_", parent="aten::empty")
        found = finding(steps(part, part, part), "LG004")
        assert "fill_uninitialized_memory = False" in str(found.fix.code)
        part = self.part("aten::fill_", parent="aten::full")
        assert answer(steps(part, part, part), "LG004")[1] == []

    def test_gradcheck_in_the_loop(self) -> None:
        part = [build.python("torch/autograd/gradcheck.py(2053): gradcheck", 500, 5_000)]
        assert "gradcheck" in finding(steps(part, part, part), "LG004").why

    @pytest.mark.parametrize(
        ("environment", "switch"),
        [
            ({"variables": {"TORCH_DISTRIBUTED_DEBUG": "detail"}}, "TORCH_DISTRIBUTED_DEBUG=DETAIL"),
            ({"python_debug": True}, "-X dev"),
            ({"variables": {"PYTHONMALLOC": "debug"}}, "PYTHONMALLOC=debug"),
            ({"anomaly_mode": True}, "set_detect_anomaly"),
        ],
    )
    def test_switches_that_no_event_shows_carry_no_saving(self, environment: dict[str, Any], switch: str) -> None:
        found = finding(launches({"environment": environment}), "LG004")
        assert found.impact == "info"
        assert switch in found.why

    def test_recorded_and_off(self) -> None:
        own = {"environment": {"anomaly_mode": False, "variables": {"TORCH_DISTRIBUTED_DEBUG": "INFO"}}}
        assert "no debugging switch was recorded as set" in reason(launches(own), "LG004", "passed")


class TestCudnnBenchmark:
    """CV003."""

    def test_fixed_shapes_and_benchmark_off(self) -> None:
        found = finding(generated("layout_conversion", fixed=True, cudnn_benchmark=False), "CV003")
        assert found.impact == "info"
        assert found.saving is None
        assert "cnn.py:29" in map(str, found.locations)

    def test_benchmark_on(self) -> None:
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
