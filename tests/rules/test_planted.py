"""The generated jobs as a whole: what rules say together of planted faults, and of jobs without any."""

from __future__ import annotations

from statistics import median

import pytest
from support.findings import loud, of_code, places, saving_of
from support.planted import MORE_TO_RECEIVE_US, claimed_us, median_cost_us
from support.traces import Example, GetExample

from fixtures.scenarios import SCENARIOS

HEALTHY = ("healthy", "cuda_graph", "loss_item", "hidden_host_work")


def test_the_estimates_are_within_ten_percent_in_the_median(example: GetExample) -> None:
    """Of the first finding of each scenario that states a saving, beside what was planted."""
    errors = []
    for scenario, plan in SCENARIOS.items():
        findings = (finding for code in plan.codes for finding in of_code(example(scenario).result.findings, code))
        priced = next((finding for finding in findings if finding.saving), None)
        if priced is not None:
            errors.append(abs(saving_of(priced).est_us / claimed_us(example, scenario, priced.code) - 1))
    assert len(errors) >= 0.75 * sum(bool(plan.codes) for plan in SCENARIOS.values())
    assert median(errors) <= 0.10
    assert sum(error <= 0.25 for error in errors) >= 0.75 * len(errors)


@pytest.mark.parametrize("scenario", HEALTHY)
def test_nothing_to_fix_in_a_healthy_job(example: GetExample, scenario: str) -> None:
    findings = loud(example(scenario).result.findings)
    assert findings == []


class TestFiveFaults:
    """One job with five faults: each is found on its own line at its own price."""

    @pytest.fixture
    def faulty(self, example: GetExample) -> Example:
        return example("five_faults")

    @pytest.mark.parametrize("part", SCENARIOS["five_faults"].parts)
    def test_part(self, faulty: Example, part: str) -> None:
        planted = next(p for p in faulty.planted.parts if p.scenario == part)
        (code,) = planted.codes
        named = [(places(f), saving_of(f).est_us) for f in of_code(faulty.result.findings, code)]
        here = [estimate for where, estimate in named if planted.site in where]
        assert here, named
        assert here[0] == pytest.approx(
            median_cost_us(planted) - (MORE_TO_RECEIVE_US if code == "DL001" else 0), rel=0.05
        )

    def test_fixed_twin_is_silent(self, example: GetExample) -> None:
        findings = loud(example("five_faults", fixed=True).result.findings)
        assert findings == []

    def test_the_fixes_together_save_no_more_than_was_planted(self, faulty: Example) -> None:
        combined = faulty.result.combined
        assert combined is not None
        assert combined.saving_us <= 1.05 * median_cost_us(faulty.planted)
