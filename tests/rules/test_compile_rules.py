"""LB004, LB008, LB009 and LB010 with what `traceopt run` noted of torch.compile, beside the trace of the same steps."""

from __future__ import annotations

from typing import Any

import pytest
from test_mm_ef import RULES, found, saving_of

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.requirements import lacks, rules_out
from traceopt.testing import A100, Machine

REASON = "Unsupported Tensor.item() call\n  Explanation: Dynamo cannot trace it.\n  Hint: Do not call it."


def compilation(frame: int, number: int = 0, function: str = "forward", **values: Any) -> dict[str, Any]:
    head = {"id": f"{frame}/{number}", "co_name": function, "co_filename": "train.py", "co_firstlineno": 5}
    return head | {"duration_us": 1_000_000} | values


def noted(**more: Any) -> dict[str, Any]:
    """A step of two pieces, of which the second follows a graph break."""
    resumed = compilation(1, 0, "torch_dynamo_resume_in_forward_at_9")
    breaks = [{"reason": REASON, "stack": [["train.py", 9, "forward"]], "count": 2}]
    return {"breaks": breaks, "compilations": [compilation(0), resumed]} | more


def fixed() -> dict[str, Any]:
    return {"breaks": [], "compilations": [compilation(0)]}


def training(pieces: int = 2, frames: int = 0, entry_us: float = 300.0) -> Machine:
    """Steps that launch a short kernel in each piece of compiled code, so that the GPU waits for the host."""
    machine = Machine(A100)
    for _ in range(5):
        with machine.step():
            for piece in range(pieces):
                with machine.annotate("TorchDynamo Cache Lookup"):
                    machine.idle(entry_us)
                with machine.annotate(f"Torch-Compiled Region: {frames + piece}/0"):
                    with machine.annotate("Pregraph bytecode"):
                        machine.idle(entry_us)
                    machine.launch(100)
            machine.synchronize()
    return machine


def facts_of(machine: Machine, dynamo: dict[str, Any] | None) -> Facts:
    trace = machine.facts().trace
    trace.meta.header["traceopt"] = {"dynamo": dynamo, "environment": {"cpu_count": 8}}
    return Facts(trace)


class TestGraphBreak:
    def test_the_pieces_after_a_break_are_priced(self) -> None:
        (finding,) = found("LB008", facts_of(training(), noted()))
        assert [str(place) for place in finding.locations] == ["train.py:9"]
        assert "Each step runs 2 pieces of compiled code, 1 of them only because of a break." in finding.why
        # 600 us to enter the second piece, and the GPU works for 100 us of them
        assert saving_of(finding).est_us == pytest.approx(500, rel=0.1)
        assert "Do not call it." in finding.fix.text

    def test_silent_without_a_break(self) -> None:
        assert found("LB008", facts_of(training(pieces=1), fixed())) == []

    def test_silent_if_the_steps_do_not_run_that_code(self) -> None:
        facts = facts_of(training(frames=7), noted())
        assert found("LB008", facts) == []
        assert "does not run in the recorded steps" in RULES["LB008"].passed(facts)

    def test_no_saving_where_the_host_is_fast(self) -> None:
        (finding,) = found("LB008", facts_of(training(entry_us=0.1), noted()))
        assert finding.saving is None


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
        (finding,) = found("LB009", facts_of(training(pieces=1), notes))
        assert [str(place) for place in finding.locations] == ["train.py:7"]
        assert "forward() was compiled again 4 times" in finding.why
        assert "as a tensor" in finding.fix.text

    def test_a_shape_that_becomes_dynamic_is_normal(self) -> None:
        notes = {"compilations": [compilation(0), *self.AGAIN[:1]]}
        facts = facts_of(training(pieces=1), notes)
        assert found("LB009", facts) == []
        assert RULES["LB009"].passed(facts) == "torch.compile recompiled 1 time, and gave up on no function."

    def test_a_function_that_runs_in_eager_mode(self) -> None:
        failed = {"id": "0/8", "fail_reason": "Dynamo recompile limit exceeded\n  Hint: raise it"}
        (finding,) = found("LB009", facts_of(training(pieces=1), {"compilations": [compilation(0), failed]}))
        assert "gave up on forward(), which runs in eager mode" in finding.why
        assert [str(place) for place in finding.locations] == ["train.py:5"]


class TestSkippedGraphs:
    def test_the_reason_and_the_fix(self) -> None:
        skipped = compilation(0, cudagraph_skip_reason="skipping cudagraphs due to mutated inputs (1 instances)")
        (finding,) = found("LB010", facts_of(training(pieces=1), {"compilations": [skipped]}))
        assert "mutated inputs" in finding.why
        assert "in place" in finding.fix.text

    def test_skips_that_were_only_counted(self) -> None:
        notes = fixed() | {"inductor": {"cudagraph_skips": 2}}
        (finding,) = found("LB010", facts_of(training(pieces=1), notes))
        assert "2 compilations" in finding.why

    def test_recordings_that_repeat(self) -> None:
        notes = fixed() | {"graphs_recorded": {"recorded": 12, "again": 9}}
        (finding,) = found("LB010", facts_of(training(pieces=1), notes))
        assert "9 repeat" in finding.why
        notes = fixed() | {"graphs_recorded": {"recorded": 12, "again": 2}}
        assert found("LB010", facts_of(training(pieces=1), notes)) == []


def test_odd_notes_are_ignored() -> None:
    for notes in (
        {"breaks": 5},
        {"breaks": [{"reason": 5}]},
        {"compilations": [{"id": [], "co_name": {}}]},
        {"x": "y"},
    ):
        facts = facts_of(training(pieces=1), notes)
        assert found("LB008", facts) == found("LB009", facts) == []
