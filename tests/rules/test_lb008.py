"""LB008 graph-break: avoid graph breaks in the compiled step."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from support.compiled import compilation, fixed, training, with_notes
from support.findings import RULES, found, saving_of

from traceopt.result.words.message import plain
from traceopt.testing import A100, Machine

REASON = "Unsupported Tensor.item() call\n  Explanation: Dynamo cannot trace it.\n  Hint: Do not call it."


def noted(**more: Any) -> dict[str, Any]:
    """A step of two pieces, of which the second follows a graph break."""
    resumed = compilation(1, 0, "torch_dynamo_resume_in_forward_at_9")
    breaks = [{"reason": REASON, "stack": [["train.py", 9, "forward"]], "count": 2}]
    return {"breaks": breaks, "compilations": [compilation(0), resumed]} | more


class TestGraphBreak:
    def test_fires_on_the_pieces_after_a_break(self) -> None:
        (finding,) = found("LB008", with_notes(training(), noted()))
        assert [str(place) for place in finding.locations] == ["train.py:9"]
        assert "Each step runs 2 pieces of compiled code, 1 of them only because of a break." in finding.why
        # 600 us to enter the second piece, and the GPU works for 100 us of them
        assert saving_of(finding).est_us == pytest.approx(500, rel=0.1)
        assert "Do not call it." in finding.fix.text

    def test_silent_without_a_break(self) -> None:
        assert found("LB008", with_notes(training(pieces=1), fixed())) == []

    def test_silent_if_the_steps_do_not_run_that_code(self) -> None:
        facts = with_notes(training(frames=7), noted())
        assert found("LB008", facts) == []
        assert "does not run in the recorded steps" in plain(RULES["LB008"].passed(facts))

    def test_no_saving_where_the_host_is_fast(self) -> None:
        (finding,) = found("LB008", with_notes(training(entry_us=0.1), noted()))
        assert finding.saving is None

    def test_fires_without_a_log_on_the_functions_that_resume_after_a_break(self) -> None:
        machine = Machine(A100, with_stack=1)
        for _ in range(5):
            with machine.step(), machine.python("train.py(5): forward"):
                for piece, resumed in enumerate((None, "torch_dynamo_resume_in_forward_at_9")):
                    with machine.python(f"train.py(9): {resumed}") if resumed else nullcontext():
                        with machine.annotate("TorchDynamo Cache Lookup"):
                            machine.idle(300)
                        with machine.annotate(f"Torch-Compiled Region: {piece}/0"):
                            machine.launch(100)
                machine.synchronize()
        (finding,) = found("LB008", machine.facts())
        assert [str(place) for place in finding.locations] == ["train.py:9"]
        assert "1 of them only because of a break. The most frequent one in forward(): the reason" in finding.why

    @pytest.mark.parametrize("notes", [noted(), fixed()], ids=["broken", "whole"])
    def test_graphs_need_a_step_without_breaks(self, notes: dict[str, Any]) -> None:
        (finding,) = found("LB002", with_notes(training(), notes))
        assert ("Remove the graph breaks first (LB008)" in finding.fix.text) == bool(notes["breaks"])
