"""HS002 blocking-copy: avoid blocking copies to the host inside the step."""

from __future__ import annotations

import pytest
from support.planted import PlantedFault

from traceopt.rules.catalogue.hs002_blocking_copy import BlockingCopy
from traceopt.rules.savings.work.pinned_copies import UNKNOWN_FACTOR
from traceopt.testing import A100, assert_finds, assert_silent
from traceopt.testing.machine import Machine

COPY_US = 20_000


class TestPlanted(PlantedFault):
    code = "HS002"
    within = 0.10


def predictions(target: str = "Pageable", *, computes_meanwhile: bool) -> Machine:
    """A network whose predictions are copied to the host in each step."""
    machine = Machine(A100)
    for _ in range(5):
        with machine.step():
            machine.launch(5_000)
            if computes_meanwhile:
                machine.launch(COPY_US + 10_000, stream=9)
            with machine.operator("aten::to"), machine.operator("aten::copy_"):
                machine.copy_to_host(COPY_US, target)
    return machine


def test_a_copy_during_which_nothing_else_runs_counts() -> None:
    """The GPU is never idle for long, so the wait for it costs nothing, but the copy does."""
    finding = assert_finds(BlockingCopy, predictions(computes_meanwhile=False))
    assert finding.saving is not None
    assert finding.saving.est_us == pytest.approx((1 - UNKNOWN_FACTOR) / 2 * COPY_US, rel=0.05)
    assert finding.saving.low_us < 0.05 * COPY_US, "this host may copy no faster from pinned memory"
    assert finding.saving.high_us == pytest.approx(COPY_US, rel=0.05)
    assert "another 20.0 ms it only copies" in finding.why


def test_silent_if_compute_hides_the_copy() -> None:
    assert_silent(BlockingCopy, predictions(computes_meanwhile=True))


def test_silent_if_the_host_does_not_wait_for_the_copy() -> None:
    assert_silent(BlockingCopy, predictions("Pinned", computes_meanwhile=False))
