"""The faults that fixtures/ plants: the test class that rules share, and what of a fault's cost a rule prices."""

from __future__ import annotations

from statistics import fmean, median

import pytest
from support.findings import loud, of_code, places, saving_of
from support.traces import GetExample

from fixtures.generate import Planted, generate
from fixtures.job import Job
from fixtures.scenarios import SCENARIOS
from traceopt.analyzer.facts import Facts
from traceopt.result.document import Result
from traceopt.result.finding import Finding

# A worker's batch takes DL001's `hand_over_ms` to receive where nothing hides it; in the fixed twins it takes less.
MORE_TO_RECEIVE_US = 1_000 - Job.load_us


class PlantedFault:
    """The rule fires where its fault was planted, at its price and place, and is silent on the fixed twin."""

    code: str
    within: float | None = None  # of the planted cost is the estimate; None: the stated range holds the cost

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        metafunc.parametrize("scenario", [name for name, plan in SCENARIOS.items() if self.code in plan.codes])

    def test_fires_at_its_place_and_price(self, example: GetExample, scenario: str) -> None:
        subject = example(scenario)
        finding = the(subject.result, self.code)
        assert finding.impact in ("high", "medium")
        saving = saving_of(finding)
        if self.within is not None:
            # On simulated cores workers do not slow the model down, which is DL001's best case on a CPU.
            estimate = saving.high_us if scenario == "cpu_only" else saving.est_us
            assert estimate == pytest.approx(median_cost_us(subject.planted), rel=self.within)
        else:
            claimed = claimed_us(example, scenario, self.code)
            assert saving.low_us * 0.95 <= claimed <= saving.high_us * 1.05
        assert subject.planted.site is None or subject.planted.site in places(finding)

    def test_silent_on_the_fixed_twin(self, example: GetExample, scenario: str) -> None:
        findings = of_code(example(scenario, fixed=True).result.findings, self.code)
        assert loud(findings) == []


def the(result: Result, code: str) -> Finding:
    """The first finding of a code."""
    findings = of_code(result.findings, code)
    if not findings:
        pytest.fail(f"{code} is silent: {[check.reason for check in result.checks if check.code == code]}")
    return findings[0]


def median_cost_us(planted: Planted) -> float:
    """What the fault costs in the median step, which is close to what findings state."""
    return median(planted.step_us) - median(planted.fixed_step_us)


def claimed_us(example: GetExample, scenario: str, code: str) -> float:
    """The part of the planted cost that the rule's page says it prices."""
    faulty = example(scenario)
    if code in ("TC001", "TC002"):  # the products, not what else a narrower type makes faster
        return products_us(faulty.facts) - products_us(example(scenario, fixed=True).facts)
    cost = faulty.planted.cost_us if hits_some_steps(scenario) else median_cost_us(faulty.planted)
    if code == "OP001":  # at the pace of the GPU, behind which the host of the fixed twin runs ever further ahead
        cost -= example(scenario, fixed=True).facts.replayed.step_ns / 1e3 - median(faulty.planted.fixed_step_us)
    if code == "DL006":  # the same part of the typical step as of the run's mean step, which is longer
        cost *= faulty.facts.step_ns / 1e3 / fmean(faulty.planted.step_us)
    if code == "HS005":  # the refill after the last step is not in the recording
        cost *= 1 - 1 / len(faulty.planted.step_us)
    if code == "CM003":  # what goes beyond a link of 10 GB/s, whatever the link could do
        cost -= median_cost_us(generate(scenario, link_gbs=10.0).planted)
    return cost


def hits_some_steps(scenario: str) -> bool:
    """The mean step pays for it, not the median one."""
    plan = SCENARIOS[scenario]
    return not {"every", "epoch_steps"}.isdisjoint(plan.base | plan.fault)


def products_us(facts: Facts) -> float:
    return facts.tensor_core_work.eligible_ns / facts.steps.count / 1e3
