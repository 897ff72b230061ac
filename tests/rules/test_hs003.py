"""HS003 explicit-synchronize: remove explicit synchronization from the step."""

from __future__ import annotations

import pytest
from support.findings import found
from support.planted import PlantedFault

from traceopt.testing import Machine


class TestPlanted(PlantedFault):
    code = "HS003"
    within = 0.10


@pytest.mark.parametrize(("call", "removed"), [("cudaDeviceSynchronize", True), ("cudaEventSynchronize", False)])
def test_a_wait_for_a_copy_is_only_moved(call: str, removed: bool) -> None:
    """The host may read what was copied without blocking: without the wait it would read too early."""
    machine = Machine()
    for _ in range(4):
        with machine.step():
            for _ in range(20):
                machine.launch(100)
            machine.call(call, 1.0, until=max(machine.ends.values()))
            machine.idle(500)
    (finding,) = found("HS003", machine.facts())
    assert bool(finding.fix.edits) is removed
    assert ("Then wait later" in finding.fix.text) is not removed


def test_the_wait_for_copies_to_the_host_is_needed() -> None:
    """As before an optimizer on the CPU, which reads the gradients."""
    machine = Machine()
    for _ in range(4):
        with machine.step():
            for _ in range(20):
                machine.launch(100)
            machine.copy_to_host(50, target="Pinned")
            machine.synchronize()
            machine.idle(500)
    assert found("HS003", machine.facts()) == []
