"""Launch and inference rules beyond their planted traces: what blocks a graph, what happens once, what trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.findings import found
from support.jobs import facts_with

from traceopt.analyzer.facts import Facts

if TYPE_CHECKING:
    pass


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


def test_recorded_reasons_of_dynamo_are_evidence() -> None:
    facts = facts_with("recompilation")
    again = {"id": "0/1", "co_name": "forward", "recompile_reason": "0/0: L['x'].size()[0] == 4"}
    facts.trace.meta.header["traceopt"] = {"dynamo": {"compilations": [again] * 7, "graph_break": "?"}}
    (finding,) = found("LB004", Facts(facts.trace))
    assert any("size()[0] == 4" in row.what and "7 recompilations" in (row.detail or "") for row in finding.evidence)
    assert "Mark the dimension" in finding.fix.text
