"""RH003 step-drift: find out why steps become slower during the run."""

from __future__ import annotations

from typing import Any

import numpy as np

from traceopt.rules.catalogue.rh003_step_drift import StepDrift
from traceopt.testing import A100, Machine, assert_finds, assert_silent

BASE_US = 10_000.0


def of_run(later_share: float) -> Machine:
    """A trace of a run whose steps take longer from step 1,800 on."""
    shares = np.random.default_rng(1).normal(0, 0.05, 3_000) + np.where(np.arange(3_000) >= 1_800, later_share, 0.0)
    machine = Machine(A100)
    machine.metadata["traceopt"] = {"ledger": {"step_us": (BASE_US * (1 + shares)).tolist()}}
    for _ in range(5):
        with machine.step():
            machine.launch(5_000)
            machine.synchronize()
    return machine


def test_fires_and_names_the_step() -> None:
    finding = assert_finds(StepDrift, of_run(0.3))
    assert finding.why.startswith("From about step 1,800 on, the median step takes 30")


def test_silent_on_steps_that_stay_as_they_are() -> None:
    assert_silent(StepDrift, of_run(0.0))


def grown(**counts: Any) -> str:
    """What RH003 says of a run whose steps take twice as long from step 600 on, with these ratios in the batches."""
    later = np.arange(1_000) >= 600
    random = np.random.default_rng(11)
    shares = random.normal(0, 0.05, 1_000) + later
    elements = np.where(later, 64 * 512 * counts.get("elements", 1), 64 * 512) + random.integers(-64, 64, 1_000)
    machine = of_run(0.0)
    machine.metadata["traceopt"]["ledger"] = {
        "step_us": (BASE_US * (1 + shares)).tolist(),
        "samples": np.where(later, 64 * counts.get("samples", 1), 64).tolist(),
        "elements": elements.tolist(),
    } | counts.get("more", {})
    return assert_finds(StepDrift, machine).why


def test_larger_batches_are_named_if_they_grow_as_the_steps_do() -> None:
    longer = "A sample of the batches has 2 times as many elements as before: longer sequences, or larger inputs."
    assert grown(elements=2).endswith(longer)
    assert grown(elements=2, samples=2).endswith("The batches have 2 times as many samples as before.")
    unexplained = "Neither the wait for data nor garbage collection explains it."
    assert grown(elements=1.2).endswith(unexplained)
    for odd in ([512] * 999, ["x"] * 1_000, [-1] * 1_000, [1e400] * 1_000, {}, [0] * 1_000):
        assert grown(elements=2, more={"elements": odd}).endswith(unexplained)
