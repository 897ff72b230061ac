"""Changes that were tried, in every report."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.traces import GetExample

from traceopt.comparison.gates import Gate, judge
from traceopt.reports.figures import way
from traceopt.reports.html.charts.loss_chart import draw_losses
from traceopt.reports.html.page import render_html
from traceopt.reports.text.markdown import render_markdown
from traceopt.reports.text.terminal import render_terminal
from traceopt.reports.text.trial_terminal import render_trial
from traceopt.result.document import Result
from traceopt.result.trial import ComparedLosses, PeakMemory, TriedChange
from traceopt.result.words.quantities import NO_BREAK_SPACE

LOSSES = ComparedLosses("close", 1e-3, 0.0, None, [3.0, 2.0, None], [3.0, 2.001, 1.5])
KEPT = TriedChange(
    "DL001", "fix", "Load data in worker processes", "patch", "keep",
    predicted_us=40_000.0, predicted_low_us=30_000.0, predicted_high_us=41_000.0,
    before_us=152_000.0, after_us=118_000.0, gain_share=0.224, low_share=0.204, high_share=0.244,
    losses=LOSSES, memory=PeakMemory("device", 2**30, 3 * 2**30), seeded_by="traceopt", patch="--- a/x\n+++ b/x\n",
)  # fmt: skip
FAILED = TriedChange(
    "<b>\x1b[31m::error::evil</b>", "patch", "a patch", "patch", "fails", ["DL001"],
    reason="it ended with exit code 1", output=["::error::boom", "<script>alert(1)</script>"],
)  # fmt: skip


@pytest.fixture
def result(example: GetExample) -> Result:
    return replace(example("slow_loader").result, tried=[KEPT, FAILED])


def test_the_terminal(result: Result) -> None:
    text = render_terminal(result, width=100, color=False, unicode=True)
    assert "Tried on this machine:" in text
    assert "−22% ± 2.0%, 152.0 → 118.0 ms" in text
    assert "losses equal within 1e-3; peak memory 1.0 GiB → 3.0 GiB" in text
    assert "it ended with exit code 1" in text
    assert "The script sets no random seed" in text
    assert "\x1b" not in text
    assert "\n::error" not in text


@pytest.mark.parametrize("width", [60, 80, 110])
def test_the_terminal_is_as_wide_as_it_may_be(width: int) -> None:
    text = render_trial([KEPT, FAILED], width=width, color=False, unicode=False)
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= width


def test_the_page_and_the_comment(result: Result) -> None:
    page = render_html(result, static=True)
    assert 'id="tried"' in page
    assert '<polyline points="0.0,0.0 120.0,' in page
    assert "<script>alert" not in page
    comment = render_markdown(result)
    assert "#### Tried on this machine" in comment
    assert "| DL001 | keep | 40.0 ms | −22% ± 2.0%, 152.0 → 118.0 ms |" in comment.replace(NO_BREAK_SPACE, " ")
    assert "| <b>" not in comment


def test_without_a_try_there_is_no_section(example: GetExample) -> None:
    plain = example("slow_loader").result
    assert 'id="tried"' not in render_html(plain, static=True)
    assert "Tried" not in render_markdown(plain)


def test_the_document_keeps_all(result: Result) -> None:
    assert Result.from_json(result.to_json()).tried == [KEPT, FAILED]


def test_a_chart_needs_two_losses_of_each_side() -> None:
    assert draw_losses(None) is None
    assert draw_losses(ComparedLosses("identical", before=[1.0], after=[1.0])) is None
    assert draw_losses(ComparedLosses("drifts", before=[1.0, None], after=[None, None])) is None


@pytest.mark.parametrize(("limit", "status"), [("20%", "passed"), ("30%", "failed")])
def test_a_gate_on_the_measured_gain(result: Result, limit: str, status: str) -> None:
    assert judge(Gate.parse(f"measured_gain={limit}", "fail"), [result], None).status == status


def test_a_gate_without_a_try_is_not_checked(example: GetExample) -> None:
    outcome = judge(Gate.parse("measured_gain=5%", "fail"), [example("slow_loader").result], None)
    assert (outcome.status, "use traceopt try" in outcome.text) == ("not_checked", True)


def test_an_unclear_gain_passes_no_gate(result: Result) -> None:
    unclear = replace(KEPT, verdict="unclear", gain_share=0.35, low_share=-0.05, high_share=0.65)
    outcome = judge(Gate.parse("measured_gain=5%", "fail"), [replace(result, tried=[unclear])], None)
    assert (outcome.status, "an unclear gain does not count" in outcome.text) == ("not_checked", True)


def test_the_way_down_has_a_column_for_each_change_that_was_kept(result: Result) -> None:
    second = replace(KEPT, name="OP001", gain_share=0.5, low_share=0.4, high_share=0.6, tuning_round=2)
    together = replace(KEPT, kind="all", gain_share=0.6, low_share=0.55, high_share=0.65)
    bars, mark = way.draw(replace(result, tried=[KEPT, FAILED, second, together]))["data"]
    left = 100 * (1 - (KEPT.gain_share or 0.0))
    assert bars["x"] == ["original", KEPT.name, "OP001"]
    assert bars["y"] == pytest.approx([100.0, left, left / 2], rel=1e-3)
    assert bars["error_y"]["array"][2] == pytest.approx(0.1 * left, rel=1e-3)
    assert mark["y"] == [40.0]
    assert not way.draw(replace(result, tried=[FAILED]))["data"]
