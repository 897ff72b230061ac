"""The accuracy page compares predictions with measurements; no test asserts how close they are."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.traces import GetExample

from benchmarks.savings import measure as measuring
from benchmarks.savings.captures import captured, predictions_of
from benchmarks.savings.measure import ROUNDS, able, found_of, noise, saving_row
from benchmarks.savings.page import Proof, measured_on_cpu, part, row
from benchmarks.savings.widths import Predicted, held, width_of
from fixtures.workloads.pairs import PAIRS
from traceopt.comparison.noise import step_change
from traceopt.result.document import Combined, Result
from traceopt.result.experiments import Compared, MeasuringDevice, Rates
from traceopt.rules.savings.known_error import ERROR_ON_CPU, ERROR_ON_GPU
from traceopt.trying.changes import Prediction
from traceopt.trying.measured_run import MeasuredRun
from traceopt.trying.rounds import measure

[PAIR, *_] = PAIRS
TRACES = Path(__file__).resolve().parents[2] / "fixtures" / "traces"
BOTH = next(pair for pair in PAIRS if pair.second)


def rounds(*savings_ms: float | None, plain_ms: float = 100.0, fixed_ms: float = 60.0) -> list[dict[str, Any]]:
    predicted = ({} if ms is None else {"code": "DL001", "saving_ms": ms} for ms in savings_ms)
    return [{"plain_ms": plain_ms, "fixed_ms": fixed_ms, **one} for one in predicted]


def test_a_prediction_is_taken_off_the_step_without_a_profiler() -> None:
    proof = Proof("slow", rounds(40.0, 50.0, 90.0), 0, 0.011)
    assert proof.predicted_ms == pytest.approx(50.0)
    assert proof.step_error == pytest.approx(-1 / 6)
    assert proof.gain_error == pytest.approx(0.25)
    assert row(proof) == "| slow | DL001 | 100.0 | 50.0 | 60.0 | ± 1.1% | -17% | +25% |"


def test_what_the_trace_alone_predicts_has_its_own_error() -> None:
    proof = Proof("slow", rounds(50.0), 0, 0.011, trace_alone=0.6)
    assert proof.gain_error == pytest.approx(0.25)
    assert proof.error_of_trace_alone == pytest.approx(-0.25)
    assert Proof("slow", rounds(50.0), 0, 0.011).error_of_trace_alone is None


def test_the_second_analysis_has_the_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shutil.copytree(TRACES / "h100" / "fp32_matmul" / "plain", tmp_path / "logs")

    def measured(result: Result, _: float, *, again: bool) -> Rates:
        assert again, "not from an earlier run"
        answers = tuple(Compared(one, 3e6, 1e6, 0.0) for one in measuring.comparisons_of(result))
        return Rates(MeasuringDevice("NVIDIA H100 80GB HBM3", "2.13"), answers)

    monkeypatch.setattr(measuring, "measured", measured)
    results = measuring.with_experiments(sorted(map(str, folder.iterdir())), [])
    basis, other = (
        next(one.saving.basis for one in result.findings if one.code == "TC001" and one.saving) for result in results
    )
    assert "Measured on this device" in other
    assert "Measured on this device" not in basis


def test_a_range_is_as_wide_as_the_largest_error() -> None:
    exact, low, lowest = (Predicted("LG001", 40.0, 40.0, 40.0, gain) for gain in (40.0, 44.0, 60.1))
    pairs = [*[exact] * 8, low, lowest]
    assert width_of(pairs) == pytest.approx(0.51), "rounded up"
    assert low.holds(0.1)
    assert not lowest.holds(0.1)
    text = held(pairs)
    assert "by +6% on average, and by +0% in the median (bias)" in text
    assert "10 of 10 measured gains lie in the stated range; 9, if" in text


def test_no_range_is_narrower_than_the_measured_pairs_show() -> None:
    assert width_of(measured_on_cpu()) == ERROR_ON_CPU
    assert width_of(predictions_of(captured())) == ERROR_ON_GPU


def test_noise_is_half_the_interval_and_shrinks_with_more_rounds() -> None:
    plain, fixed = [[100.0, 101.0], [103.0, 104.0], [99.0, 100.0]], [[60.0, 61.0], [63.0, 64.0], [61.0, 62.0]]
    few, many = (noise(step_change(times * plain, times * fixed, in_turn=True)) for times in (1, 4))
    assert few is not None
    assert many is not None
    assert 0 < many < few < 0.1
    assert noise(step_change([[100.0]], [[60.0]])) is None


def test_rounds_go_on_until_the_noise_is_small() -> None:
    plain, fixed = (cycle(times) for times in ([100.0, 104.0, 97.0], [60.0, 59.0, 61.0]))

    def run(sides: Sequence[Iterator[float]], /) -> list[MeasuredRun]:
        return [MeasuredRun([next(side)] * 40) for side in sides]

    wide, narrow = (
        measure(run, plain, fixed, wanted_us=lambda _: 40.0, time_left=lambda: 1.0, widest_share=share)
        for share in (None, 0.03)
    )
    assert len(wide.counted) < len(narrow.counted)
    assert 2 * (noise(narrow.change()) or 1.0) <= 0.03


def test_what_most_rounds_do_not_find_has_no_prediction() -> None:
    proof = Proof("slow", rounds(40.0, None, None), 0, 0.0)
    assert (proof.predicted_ms, proof.step_error, proof.gain_error) == (None, None, None)
    assert row(proof) == "| slow | DL001 | 100.0 | – | 60.0 | ± 0.0% | – | – |"


def test_the_page_has_the_errors_and_what_is_not_measured() -> None:
    environment = {"gpus": [], "cores": 2, "threads": "1", "machine": "x86_64", "torch": "2.13.0"}
    savings = {"slow": 40.0, "slower": 44.0, "slowest": 20.0, "lost": None}
    pairs = {name: {"rounds": rounds(*[ms] * ROUNDS), "discarded": 1, "noise": 0.02} for name, ms in savings.items()}
    pairs["noisy"] = {"rounds": rounds(*[40.0] * ROUNDS), "discarded": 0, "noise": 0.08}
    pairs["slow"]["trace_alone"] = 0.75
    pairs["few"] = {"rounds": rounds(40.0), "discarded": 3, "noise": 0.02}
    pairs["no_gain"] = {"rounds": rounds(*[1.0] * ROUNDS, fixed_ms=99.0), "discarded": 0, "noise": 0.02}
    text = part([{"environment": environment, "pairs": pairs}], "## captured", "precision 100 %")
    assert "predicted step is 7%, the largest 33%." in text
    assert "predicted gain is 10%, the largest 50%.\n" in text
    assert "From the trace alone, without experiments: 25%, the largest 25%." in text
    assert "Predicted from the trace alone, by an earlier version: slower, slowest." in text
    assert "3 of 4 pairs have a prediction" in text
    assert "Measured too imprecisely to publish: noisy, few, no_gain." in text
    assert "not counted: 7." in text
    assert "| noisy |" not in text
    assert "straggler_rank" in text.partition("Not measured yet, on a GPU if they need one: ")[2]
    assert "item_each_step" not in text, "its traces are kept"
    assert "precision 100 %" in text


def test_the_prediction_is_that_of_the_planted_kind(example: GetExample) -> None:
    result = example("slow_loader").result
    saved = next(finding.saving for finding in result.findings if finding.code == "DL001")
    assert saved is not None
    predicted = Prediction(saved.est_us, saved.low_us, saved.high_us)
    assert found_of(result, PAIR) == ("DL001", predicted)
    assert saving_row("DL001", predicted)["saving_ms"] == saved.est_us / 1e3
    assert found_of(example("slow_loader", fixed=True).result, PAIR) is None


def test_of_two_planted_bottlenecks_it_is_that_of_both_fixes_together(example: GetExample) -> None:
    result = example("slow_loader").result
    both = Combined([BOTH.codes[0], BOTH.second[0]], 7e3, 0.2, 28e3, None, None)
    predicted = Prediction(7e3, 7e3, 7e3)
    assert found_of(replace(result, combined=both), BOTH) == (" + ".join(both.codes), predicted)
    assert found_of(replace(result, combined=replace(both, codes=[BOTH.codes[0]])), BOTH) is None


def test_a_machine_runs_what_it_has_gpus_for() -> None:
    assert {pair.name for pair in able(0)} == {pair.name for pair in PAIRS if pair.on_cpu}
    assert {pair.name for pair in able(1)} == {pair.name for pair in PAIRS if pair.ranks == 1}
    assert able(2) == list(PAIRS)
