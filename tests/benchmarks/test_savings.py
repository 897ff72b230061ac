"""The proof of savings compares a prediction with what was measured; how close they are is no test's business."""

from __future__ import annotations

import pytest

from benchmarks.savings import Proof, page, row
from fixtures.workloads.pairs import PAIRS
from traceopt.rules.finding import Finding, Fix, Saving

PAIR = PAIRS[0]


def finding(share: float) -> Finding:
    saving = Saving(1.0, 2.0, 3.0, share, "measured")
    return Finding("DL001", "stall", "Load", "high", "high", "one line", "none", saving, "why", [], [], Fix("fix"))


def test_a_prediction_is_a_share_of_the_step_without_a_profiler() -> None:
    proof = Proof(PAIR, plain_ms=100.0, fixed_ms=60.0, finding=finding(0.5))
    assert proof.predicted_ms == pytest.approx(50.0)
    assert proof.gain_error == pytest.approx(0.25)
    assert row(proof) == f"| {PAIR.name} | DL001 | 100.0 | 60.0 | 50.0 | 40.0 | +25% |"


def test_what_was_not_found_has_no_prediction() -> None:
    proof = Proof(PAIR, plain_ms=100.0, fixed_ms=60.0, finding=None)
    assert (proof.predicted_ms, proof.gain_error) == (None, None)
    assert row(proof) == f"| {PAIR.name} | none | 100.0 | 60.0 | – | 40.0 | – |"


def test_the_page_has_the_errors_and_what_is_not_measured() -> None:
    proofs = [Proof(PAIR, 100.0, 60.0, finding(share)) for share in (0.4, 0.5, 0.1)] + [Proof(PAIR, 9.0, 8.0, None)]
    text = page(proofs, [PAIRS[1]], runs=3)
    assert "missed by 25% in the median and by 75% at most, over 3 of\n4 pairs" in text
    assert f"Not measured on a GPU yet: {PAIRS[1].name}." in text
