"""A step that is slow once changes nothing but the finding about it; slow steps that recur are part of the mean."""

from __future__ import annotations

import re
from collections.abc import Collection

import pytest
from support.findings import document_of

from traceopt.result.document import Result
from traceopt.testing import A100, Machine
from traceopt.testing.events import annotation

USUAL_US, SLOW_US, KERNEL_US, LOG_US = 3_000, 12_000, 5_000, 1_000
STEPS = 12


def run(slow: Collection[int] = ()) -> Result:
    """Steps that wait for data and log. Some wait four times as long."""
    machine = Machine(A100, with_stack=1)
    for step in range(STEPS):
        with machine.step():
            load_us = SLOW_US if step in slow else USUAL_US
            loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
            machine.events.append(annotation(loader, machine.now, load_us))
            machine.work(load_us, "load")
            machine.launch(KERNEL_US)
            machine.synchronize()
            with machine.python("train.py(9): log"), machine.python("logging/__init__.py(1479): info"):
                machine.work(LOG_US, "write")
    return document_of(machine.facts())


def codes(result: Result) -> list[str]:
    return [finding.code for finding in result.findings]


def calls(result: Result) -> list[float | None]:
    """Calls per step in the evidence of the plan."""
    return [each.calls_per_step for _, finding in result.planned for each in finding.evidence]


@pytest.mark.parametrize("slow", [0, 5, STEPS - 1])
def test_one_slow_step_changes_neither_step_nor_verdict_nor_plan(slow: int) -> None:
    with_it, without = run([slow]), run()
    assert without.step.typical_steps == list(range(STEPS))
    assert with_it.step.typical_steps == [step for step in range(STEPS) if step != slow]
    assert with_it.step.typical_us == pytest.approx(without.step.typical_us, rel=1e-4)
    assert with_it.verdict == without.verdict
    assert [row.code for row in with_it.plan] == [row.code for row in without.plan] == ["DL001", "LG001"]
    for one, other in zip(with_it.plan, without.plan, strict=True):
        assert (one.saving_us, one.alone_us) == pytest.approx((other.saving_us, other.alone_us), rel=1e-3)
        assert one.step_us_after == pytest.approx(other.step_us_after, rel=1e-3)
    assert calls(with_it) == calls(without)
    assert {part.name: part.share for part in with_it.breakdown} == pytest.approx(
        {part.name: part.share for part in without.breakdown}, abs=1e-4
    )
    told = [finding for finding in with_it.findings if finding.code == "EF002"]
    assert [finding.saving for finding in told] == ([] if slow == 0 else [None])  # the first is start-up
    assert "EF002" not in codes(without)


@pytest.mark.parametrize("slow", [(3, 7), (3, STEPS - 1)])
def test_slow_steps_that_recur_are_part_of_the_mean(slow: tuple[int, int]) -> None:
    result = run(slow)
    assert result.step.typical_steps == list(range(STEPS))
    usual = run().step.typical_us
    assert usual is not None
    assert result.step.typical_us == pytest.approx(usual + 2 * (SLOW_US - USUAL_US) / STEPS, rel=1e-4)
    assert result.step.median_us == pytest.approx(usual, rel=1e-3)
    (finding,) = [finding for finding in result.findings if finding.code == "EF002"]
    cost = re.search(r"That costs ([\d.]+) ms per step on average", finding.why)
    assert cost is not None
    assert 1e3 * float(cost[1]) == pytest.approx(2 * (SLOW_US - USUAL_US) / STEPS, rel=0.02)
    assert finding.saving is None  # a question is no fix
