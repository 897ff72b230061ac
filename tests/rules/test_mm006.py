"""MM006 state-heavy: shrink parameters, gradients and optimizer state."""

from __future__ import annotations

from typing import Any

from support.findings import found
from support.jobs import facts_with


class TestStateHeavy:
    BIG: dict[str, Any] = {"dtype": "fp32", "hidden": 5120, "layers": 4, "steps": 3}  # noqa: RUF012

    def test_fires_and_names_the_largest_part(self) -> None:
        (finding,) = found("MM006", facts_with(**self.BIG))
        assert "optimizer state" in finding.fix.text
        assert "8-bit" in finding.fix.text
        assert finding.saving is None

    def test_silent_on_a_device_with_room(self) -> None:
        assert found("MM006", facts_with(dtype="fp32", layers=1, steps=3)) == []
