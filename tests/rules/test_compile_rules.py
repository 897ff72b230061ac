"""LB004, LB008 and LB010 with what `traceopt run` noted of torch.compile, beside the trace of the same steps."""

from __future__ import annotations

from support.compiled import training, with_notes
from support.findings import found

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


def test_odd_notes_are_ignored() -> None:
    for notes in (
        {"breaks": 5},
        {"breaks": [{"reason": 5}]},
        {"compilations": [{"id": [], "co_name": {}}]},
        {"x": "y"},
    ):
        facts = with_notes(training(pieces=1), notes)
        assert found("LB008", facts) == found("LB004", facts) == []
