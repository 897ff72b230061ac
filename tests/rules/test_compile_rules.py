"""LB004, LB008, LB009 and LB010 with what `traceopt run` noted of torch.compile, beside the trace of the same steps."""

from __future__ import annotations

from support.compiled import compilation, training, with_notes
from support.findings import RULES, found

from traceopt.analyzer.requirements import lacks, rules_out
from traceopt.testing import A100, Machine


class TestMissing:
    def test_a_compiled_trace_without_notes_says_how_to_record_them(self) -> None:
        facts = training().facts()
        assert rules_out(facts, "compilation") is None
        assert "TORCH_TRACE" in (lacks(facts, "compilation") or "")

    def test_a_trace_without_compiled_code_needs_none(self) -> None:
        machine = Machine(A100)
        with machine.step():
            machine.launch(100)
        assert rules_out(machine.facts(), "compilation") is not None


class TestRepeatedRecompilation:
    AGAIN = tuple(
        compilation(0, number, recompile_reason=f"0/{number - 1}: self.scale == {number} # x # train.py:7 in forward")
        for number in range(1, 5)
    )

    def test_the_guard_and_its_line(self) -> None:
        notes = {"compilations": [compilation(0), *self.AGAIN]}
        (finding,) = found("LB009", with_notes(training(pieces=1), notes))
        assert [str(place) for place in finding.locations] == ["train.py:7"]
        assert "forward() was compiled again 4 times" in finding.why
        assert "as a tensor" in finding.fix.text

    def test_a_shape_that_becomes_dynamic_is_normal(self) -> None:
        notes = {"compilations": [compilation(0), *self.AGAIN[:1]]}
        facts = with_notes(training(pieces=1), notes)
        assert found("LB009", facts) == []
        assert RULES["LB009"].passed(facts) == "torch.compile recompiled 1 time, and gave up on no function."

    def test_a_function_that_runs_in_eager_mode(self) -> None:
        failed = {"id": "0/8", "fail_reason": "Dynamo recompile limit exceeded\n  Hint: raise it"}
        (finding,) = found("LB009", with_notes(training(pieces=1), {"compilations": [compilation(0), failed]}))
        assert "gave up on forward(), which runs in eager mode" in finding.why
        assert [str(place) for place in finding.locations] == ["train.py:5"]


def test_odd_notes_are_ignored() -> None:
    for notes in (
        {"breaks": 5},
        {"breaks": [{"reason": 5}]},
        {"compilations": [{"id": [], "co_name": {}}]},
        {"x": "y"},
    ):
        facts = with_notes(training(pieces=1), notes)
        assert found("LB008", facts) == found("LB009", facts) == []
