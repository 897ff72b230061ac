"""TC002 tf32-off: enable TF32 for FP32 matmuls."""

from __future__ import annotations

from support.planted import PlantedFault
from support.recorded_facts import finding, generated, reason


class TestPlanted(PlantedFault):
    code = "TC002"


class TestPrecision:
    """TC002 and CV001 know what is set already."""

    def test_settings_that_are_already_right_are_not_advised(self) -> None:
        change = {"environment.matmul_tf32": True}
        assert "TF32 was recorded as allowed" in reason(generated("tf32_off", change=change), "TC002", "not_applicable")

    def test_only_settings_that_are_off_are_advised(self) -> None:
        found = finding(generated("tf32_off"), "TC002")
        assert found.fix.code == 'torch.set_float32_matmul_precision("high")'
        assert "TF32 for matmuls: off" in [row.what for row in found.evidence]

    def test_a_variable_overrides_the_script(self) -> None:
        change = {"environment.matmul_tf32": True, "environment.variables": {"NVIDIA_TF32_OVERRIDE": "0"}}
        found = finding(generated("tf32_off", change=change), "TC002")
        assert found.fix.code == "unset NVIDIA_TF32_OVERRIDE"
