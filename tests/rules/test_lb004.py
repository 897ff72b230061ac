"""LB004 recompilation: avoid recompilation in steady-state steps."""

from __future__ import annotations

from support.compiled import compilation, training, with_notes
from support.findings import RULES, found
from support.jobs import facts_with
from support.planted import PlantedFault

from traceopt.analyzer.facts import Facts
from traceopt.result.words.message import plain


class TestPlanted(PlantedFault):
    code = "LB004"


class TestRepeatedRecompilation:
    AGAIN = tuple(
        compilation(0, number, recompile_reason=f"0/{number - 1}: self.scale == {number} # x # train.py:7 in forward")
        for number in range(1, 5)
    )

    def test_the_guard_and_its_line(self) -> None:
        notes = {"compilations": [compilation(0), *self.AGAIN]}
        (finding,) = found("LB004", with_notes(training(pieces=1), notes))
        assert [str(place) for place in finding.locations] == ["train.py:7"]
        assert "forward() was compiled again 4 times" in finding.why
        assert "as a tensor" in finding.fix.text

    def test_a_shape_that_becomes_dynamic_is_normal(self) -> None:
        notes = {"compilations": [compilation(0), *self.AGAIN[:1]]}
        facts = with_notes(training(pieces=1), notes)
        assert found("LB004", facts) == []
        assert plain(RULES["LB004"].passed(facts)).startswith(
            "torch.compile recompiled 1 time, and gave up on no function."
        )

    def test_a_function_that_runs_in_eager_mode(self) -> None:
        failed = {"id": "0/8", "fail_reason": "Dynamo recompile limit exceeded\n  Hint: raise it"}
        (finding,) = found("LB004", with_notes(training(pieces=1), {"compilations": [compilation(0), failed]}))
        assert "gave up on forward(), which runs in eager mode" in finding.why
        assert [str(place) for place in finding.locations] == ["train.py:5"]


def test_recorded_reasons_of_dynamo_are_evidence() -> None:
    facts = facts_with("recompilation")
    again = {"id": "0/1", "co_name": "forward", "recompile_reason": "0/0: L['x'].size()[0] == 4"}
    facts.trace.meta.header["traceopt"] = {"dynamo": {"compilations": [again] * 7, "graph_break": "?"}}
    (finding,) = found("LB004", Facts(facts.trace))
    assert any("size()[0] == 4" in row.what and "7 recompilations" in (row.detail or "") for row in finding.evidence)
    assert "Mark the dimension" in finding.fix.text
