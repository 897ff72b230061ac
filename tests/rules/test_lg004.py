"""LG004 debug-mode-on: turn off debugging modes."""

from __future__ import annotations

from typing import Any

import pytest
from support.planted import PlantedFault
from support.recorded_facts import NOT_RECORDED, answer, finding, reason
from support.short_steps import launches, steps

from traceopt.testing import events as build


class TestPlanted(PlantedFault):
    code = "LG004"


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

    def test_the_line_that_turned_it_on_comes_first(self) -> None:
        part = self.part("MmBackward0", "aten::isnan", "aten::_is_any_true", "aten::item")
        own = {"anomaly_mode_set": [["train.py(8): <module>"]]}
        [place] = finding(steps(part, part, part, traceopt=own), "LG004").locations
        assert (place.file, place.line) == ("train.py", 8)

    def test_checks_outside_the_steps_are_not_counted(self) -> None:
        part = self.part("MmBackward0", "aten::isnan", "aten::_is_any_true", "aten::item")
        before = [{**event, "ts": event["ts"] - 5_000} for event in part]
        found = finding(steps([*before, *part], part, part), "LG004")
        assert [row.calls_per_step for row in found.evidence] == [3]

    def test_tracebacks_that_the_forward_pass_stores(self) -> None:
        """Anomaly mode calls it in each operator that records a node; a script may call it without that mode."""
        stored = build.python("torch/fx/traceback.py(497): format_stack", 200, 400)
        part = [stored, *self.part("MmBackward0", "aten::isnan", "aten::_is_any_true", "aten::item")]
        found = finding(steps(part, part, part), "LG004")
        assert found.saving is not None
        assert found.saving.est_us == 400 + 3 * 150
        alone = [stored, *self.part("MmBackward0")]
        assert NOT_RECORDED in reason(steps(alone, alone, alone), "LG004", "not_checked")

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
