"""Launch and inference rules beyond their planted traces: what blocks a graph, what happens once, what trains."""

from __future__ import annotations

import pytest
from support.findings import found
from support.jobs import facts_with

SMALL = {"batch": 1, "tokens": 512, "hidden": 512, "vocabulary": 8192, "input_bytes": 2**16}
STEADY = ("LB004", "LB005")


@pytest.mark.parametrize("code", STEADY)
class TestOnceOnlyWork:
    def test_a_one_off_has_no_saving(self, code: str) -> None:
        job = {"compile_us": 60_000} if code == "LB004" else {"load_code_us": 60_000}
        (finding,) = found(code, facts_with(**job, every=5, steps=5))
        assert finding.saving is None
        assert finding.confidence == "low"
        assert "in 1 of 5 steps" in finding.why

    def test_the_first_step_is_a_start(self, code: str) -> None:
        job = {"compile_us": 60_000} if code == "LB004" else {"load_code_us": 60_000}
        assert found(code, facts_with(**job, every=4, steps=4)) == []

    def test_hidden_behind_a_busy_gpu(self, code: str) -> None:
        job = {"compile_us": 2_000} if code == "LB004" else {"load_code_us": 2_000}
        assert found(code, facts_with(**job, every=2, steps=6)) == []
