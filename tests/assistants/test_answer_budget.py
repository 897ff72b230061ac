"""An answer that is too long loses its least important rows, and says so."""

from __future__ import annotations

import pytest

from traceopt.assistants.answers import UNTRUSTED, PatchAnswer, RuleRow, RulesAnswer
from traceopt.assistants.budget import as_text, fitted, milliseconds
from traceopt.reports.agent.tokens import estimated_tokens

ROWS = [RuleRow(f"XX{number:03}", f"problem-{number}", "family", "Change it") for number in range(100)]


def test_an_answer_that_fits_is_whole() -> None:
    content = fitted(RulesAnswer(untrusted_text=UNTRUSTED, rules=ROWS), 25_000)
    assert len(content["rules"]) == 100
    assert "left_out" not in content


@pytest.mark.parametrize("budget", [300, 900])
def test_the_last_rows_go_and_are_counted(budget: int) -> None:
    content = fitted(RulesAnswer(untrusted_text=UNTRUSTED, rules=ROWS), budget)
    kept = len(content["rules"])
    assert 0 < kept < 100
    assert content["rules"][0]["code"] == "XX000"
    assert content["left_out"].startswith(f"{100 - kept} of rules; raise max_tokens, or ")
    assert 0.9 * budget < estimated_tokens(as_text(content)) <= budget


def test_a_diff_is_whole_or_absent() -> None:
    answer = PatchAnswer(untrusted_text=UNTRUSTED, diff="+ a line\n" * 1_000, ids=["DL001-123456"])
    content = fitted(answer, 500)
    assert "diff" not in content
    assert content["ids"] == ["DL001-123456"]
    assert content["left_out"] == "diff; raise max_tokens, or name one finding in findings"


@pytest.mark.parametrize("text", ["x" * 5_000, "é" * 5_000, '"' * 5_000, "1 a" * 2_000])
def test_very_long_texts_are_cut(text: str) -> None:
    answer = RulesAnswer(untrusted_text=UNTRUSTED, rules=[RuleRow("XX001", text, text, text)], page=[text])
    assert estimated_tokens(as_text(fitted(answer, 300))) <= 300


def test_times_have_three_digits() -> None:
    assert milliseconds(None) is None
    assert [milliseconds(us) for us in (0.0, 12_345.6, 999_949.0, 0.4321)] == [0.0, 12.3, 1000.0, 0.000432]
