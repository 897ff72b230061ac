"""The accuracy page compares predictions with measurements; no test asserts how close they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from benchmarks.savings.measure import ROUNDS, able, noise, prediction
from benchmarks.savings.page import Proof, page, row
from fixtures.workloads.pairs import PAIRS
from traceopt.result.document import Combined

if TYPE_CHECKING:
    from conftest import GetExample

[PAIR, *_] = PAIRS
BOTH = next(pair for pair in PAIRS if pair.second)


def rounds(*savings_ms: float | None, plain_ms: float = 100.0, fixed_ms: float = 60.0) -> list[dict[str, Any]]:
    predicted = ({} if ms is None else {"code": "DL001", "saving_ms": ms} for ms in savings_ms)
    return [{"plain_ms": plain_ms, "fixed_ms": fixed_ms, **one} for one in predicted]


def test_a_prediction_is_taken_off_the_step_without_a_profiler() -> None:
    proof = Proof("slow", rounds(40.0, 50.0, 90.0), 0)
    assert proof.predicted_ms == pytest.approx(50.0)
    assert proof.step_error == pytest.approx(-1 / 6)
    assert proof.gain_error == pytest.approx(0.25)
    assert row(proof) == "| slow | DL001 | 100.0 | 50.0 | 60.0 | ± 0% | -17% | +25% |"


def test_noise_is_that_of_the_variant_that_varies_more() -> None:
    assert noise([*rounds(40.0), *rounds(40.0, plain_ms=104.0)]) == pytest.approx(2 / 102)
    assert noise([*rounds(40.0), *rounds(40.0, plain_ms=104.0, fixed_ms=72.0)]) == pytest.approx(6 / 66)


def test_what_most_rounds_do_not_find_has_no_prediction() -> None:
    proof = Proof("slow", rounds(40.0, None, None), 0)
    assert (proof.predicted_ms, proof.step_error, proof.gain_error) == (None, None, None)
    assert row(proof) == "| slow | DL001 | 100.0 | – | 60.0 | ± 0% | – | – |"


def test_the_page_has_the_errors_and_what_is_not_measured() -> None:
    environment = {"gpus": [], "cores": 2, "threads": "1", "machine": "x86_64", "torch": "2.13.0"}
    savings = {"slow": 40.0, "slower": 44.0, "slowest": 20.0, "lost": None}
    pairs = {name: {"rounds": rounds(*[ms] * ROUNDS), "discarded": 1} for name, ms in savings.items()}
    pairs["noisy"] = {"rounds": [*rounds(*[40.0] * (ROUNDS - 1)), *rounds(40.0, fixed_ms=90.0)], "discarded": 0}
    pairs["few"] = {"rounds": rounds(40.0), "discarded": 3}
    varied = [*rounds(*[1.0] * (ROUNDS - 1), fixed_ms=99.0), *rounds(1.0, fixed_ms=95.0)]
    pairs["no_gain"] = {"rounds": varied, "discarded": 0}
    text = page([{"environment": environment, "pairs": pairs}], "precision 100 %")
    assert "predicted step is 7%, the largest 33%." in text
    assert "predicted gain is 10%, the largest 50%.\n3 of 4 pairs have a prediction" in text
    assert "because their rounds do not agree: noisy, few, no_gain." in text
    assert "7 rounds do not." in text
    assert "| noisy |" not in text
    assert "item_each_step" in text.partition("Not measured yet, on a GPU if they need one: ")[2]
    assert "precision 100 %" in text


def test_the_prediction_is_that_of_the_planted_kind(example: GetExample) -> None:
    result = example("slow_loader").result
    saved = next(finding.saving for finding in result.findings if finding.code == "DL001")
    assert saved is not None
    assert prediction(result, PAIR) == {"code": "DL001", "saving_ms": saved.est_us / 1e3}
    assert prediction(example("slow_loader", fixed=True).result, PAIR) == {}


def test_of_two_planted_bottlenecks_it_is_that_of_both_fixes_together(example: GetExample) -> None:
    result = example("slow_loader").result
    both = Combined([BOTH.codes[0], BOTH.second[0]], 7e3, 0.2, 28e3, None, None)
    assert prediction(replace(result, combined=both), BOTH)["saving_ms"] == 7.0
    assert prediction(replace(result, combined=replace(both, codes=[BOTH.codes[0]])), BOTH) == {}


def test_a_machine_runs_what_it_has_gpus_for() -> None:
    assert {pair.name for pair in able(0)} == {pair.name for pair in PAIRS if pair.on_cpu}
    assert {pair.name for pair in able(1)} == {pair.name for pair in PAIRS if pair.ranks == 1}
    assert able(2) == list(PAIRS)
