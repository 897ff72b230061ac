"""What a step processes, as the user says it: measured rate, the reference, in every output; MFU and where it goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.traces import Example, GetExample

from traceopt.api import analyze
from traceopt.cli import cli
from traceopt.errors import ConfigError
from traceopt.reports.html.page import render_html
from traceopt.reports.text.terminal import render_terminal
from traceopt.result.document import Result

TOKENS = 2048.0  # of the healthy job: two sequences of 1024


@pytest.fixture
def healthy(example: GetExample) -> Example:
    return example("healthy")


def analyzed(example: Example, **amounts: float) -> Result:
    return analyze(str(example.path), debug=True, **amounts)  # type: ignore[arg-type]


def test_rate_of_the_typical_step(healthy: Example) -> None:
    found = analyzed(healthy, tokens_per_step=TOKENS, samples_per_step=2).throughput
    steps = healthy.planted.step_us[1:]  # the host is ahead, so the first of its marks is shorter than the steps
    assert found is not None
    assert found.tokens_per_s == pytest.approx(TOKENS * 1e6 * len(steps) / sum(steps), rel=1e-3)
    assert found.samples_per_s == pytest.approx((found.tokens_per_s or 0) / 1024, abs=0.01)
    assert (found.reference_per_s, found.reference_share) == (None, None)


def test_unknown_without_amounts(healthy: Example) -> None:
    assert healthy.result.throughput is None


@pytest.mark.parametrize(("factor", "fires"), [(2.0, True), (1.0, False), (0.5, False)])
def test_below_the_reference(healthy: Example, factor: float, fires: bool) -> None:
    rate = analyzed(healthy, tokens_per_step=TOKENS).throughput
    assert rate is not None
    result = analyzed(healthy, tokens_per_step=TOKENS, reference_throughput=factor * (rate.tokens_per_s or 0))
    assert ("50% of the reference: to reach it, a step must take" in result.verdict) == fires
    assert result.throughput is not None
    assert result.throughput.reference_share == pytest.approx(1 / factor, rel=1e-3)


def test_shown_in_every_report(healthy: Example) -> None:
    result = analyzed(healthy, tokens_per_step=TOKENS, reference_throughput=150_000)
    rate = f"{result.throughput.tokens_per_s:,.0f} tokens/s per GPU" if result.throughput else "?"
    assert rate in render_terminal(result, width=90, color=False, unicode=True)
    assert rate in render_html(result, static=True)
    document = json.loads(result.to_json())
    assert document["throughput"]["reference_per_s"] == 150_000
    assert Result.from_json(result.to_json()) == result


def test_cost_of_steps_and_what_the_plan_saves(example: GetExample) -> None:
    result = analyzed(example("five_faults"), price_per_hour=36.0)
    assert result.cost is not None
    assert result.combined is not None
    assert result.cost.per_step == pytest.approx((result.step.typical_us or 0) * 1e-8, rel=1e-4)  # a cent a second
    assert result.cost.saved_per_step == pytest.approx(result.combined.saving_us * 1e-8, rel=1e-4)
    assert result.cost.of_run is None
    for text in (render_terminal(result, width=90, color=False, unicode=True), render_html(result, static=True)):
        assert "per 1,000 steps at $36.00 an hour" in text
    assert analyzed(example("five_faults")).cost is None


@pytest.mark.parametrize(
    "amounts",
    [
        {"price_per_hour": -1.0},
        {"tokens_per_step": 0.0},
        {"samples_per_step": -1.0},
        {"tokens_per_step": float("inf")},
        {"reference_throughput": 5.0},
    ],
)
def test_amounts_that_make_no_sense(healthy: Example, amounts: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        analyzed(healthy, **amounts)


class TestCommandLine:
    def run(self, *words: str) -> Any:
        return CliRunner().invoke(cli, ["analyze", "--no-html", "--format", "json", "-q", *words])

    def test_options(self, healthy: Example) -> None:
        done = self.run(str(healthy.path), "--tokens-per-step", "2048", "--reference-throughput", "3300")
        assert done.exit_code == 0
        assert json.loads(done.stdout)["throughput"]["reference_per_s"] == 3300

    def test_settings_file_and_its_precedence(self, healthy: Example, tmp_path: Path) -> None:
        settings = tmp_path / "traceopt.toml"
        settings.write_text("samples-per-step = 2\nreference-throughput = 10\n")
        document = json.loads(self.run(str(healthy.path), "--config", str(settings)).stdout)
        assert document["throughput"]["tokens_per_s"] is None
        again = self.run(str(healthy.path), "--config", str(settings), "--reference-throughput", "20")
        assert json.loads(again.stdout)["throughput"]["reference_per_s"] == 20

    @pytest.mark.parametrize("words", [("--tokens-per-step", "0"), ("--reference-throughput", "3300")])
    def test_wrong_use_is_one_line(self, healthy: Example, words: tuple[str, str]) -> None:
        done = self.run(str(healthy.path), *words)
        assert done.exit_code == 2
        assert len(done.stderr.strip().splitlines()) == 1


class TestUtilisation:
    def test_of_a_step_with_checkpointing(self, example: GetExample) -> None:
        plain, again = (example("checkpointing", fixed=fixed).result.efficiency for fixed in (True, False))
        assert again.mfu is not None
        assert plain.mfu is not None
        assert again.hfu is not None
        assert again.mfu < plain.mfu
        assert again.hfu > 1.2 * again.mfu
        assert "with recomputation" in render_html(example("checkpointing").result, static=True)

    def test_the_verdict_states_a_low_utilization(self, example: GetExample, healthy: Example) -> None:
        assert "MFU is 3.3% of the bf16 peak." in example("cudnn_search").result.verdict
        assert "MFU" not in healthy.result.verdict
