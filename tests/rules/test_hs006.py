"""HS006 launch-blocking: turn off blocking kernel launches."""

from __future__ import annotations

import pytest
from support.planted import PlantedFault
from support.recorded_facts import answer, finding, generated
from support.short_steps import launches


class TestPlanted(PlantedFault):
    code = "HS006"


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
