"""HS001 scalar-read: avoid reading single values from the GPU every step."""

from __future__ import annotations

import pytest
from support.planted import PlantedFault

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.vocabulary.causes.table import HOST_SYNC
from traceopt.rules.catalogue.hs001_scalar_read import ScalarRead
from traceopt.rules.engine import run_rules
from traceopt.testing import A100
from traceopt.testing.machine import Machine

READS, STEPS = 24, 6


class TestPlanted(PlantedFault):
    code = "HS001"
    within = 0.10


def read(machine: Machine, vendor: str) -> None:
    """`loss.item()`: two calls on NVIDIA, one on AMD."""
    with machine.operator("aten::item"), machine.operator("aten::_local_scalar_dense"):
        if vendor == "nvidia":
            machine.copy_to_host(1, target="Pinned")
            machine.synchronize(7)
        else:
            machine.copy_to_host(1, call="hipMemcpyWithStream")


def losses_of_tasks(vendor: str | None, python_us: float) -> Facts:
    """A network whose result many small heads use, each with a loss that is read, and a backward pass."""
    machine = Machine(device=A100)
    for _ in range(STEPS):
        with machine.step():
            machine.launch(3_000)
            for _ in range(READS):
                machine.launch(80)
                if vendor is not None:
                    read(machine, vendor)
                machine.idle(python_us)
            machine.launch(9_000)
            if vendor is not None:
                read(machine, vendor)
    return machine.facts()


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
@pytest.mark.parametrize("python_us", [150, 300])
def test_reads_in_a_loop_cost_the_lead_that_the_host_never_regains(vendor: str, python_us: float) -> None:
    """The first read drains the queue, and so does each of the others as soon as there is something in it."""
    facts, without = losses_of_tasks(vendor, python_us), losses_of_tasks(None, python_us)
    [found] = run_rules([ScalarRead()], facts, debug=True).findings
    assert found.saving is not None
    assert found.saving.est_us == pytest.approx((facts.step_ns - without.replayed.step_ns) / 1e3, rel=0.1)
    assert f"{READS + 1} times per step" in found.why
    assert [row.calls_per_step for row in found.evidence] == [READS + 1]
    assert facts.idle.typical_ns(HOST_SYNC) >= 1e3 * found.saving.est_us


@pytest.mark.parametrize(("loader", "codes"), [("_MultiProcessing", []), ("_SingleProcess", ["HS001"])])
def test_a_read_costs_nothing_where_worker_processes_are_too_slow(loader: str, codes: list[str]) -> None:
    """They build the next batch no sooner if the loop asks for it sooner. The main thread would."""
    machine = Machine(device=A100)
    for _ in range(STEPS):
        with machine.step():
            with machine.annotate(f"enumerate(DataLoader)#{loader}DataLoaderIter.__next__"):
                machine.idle(95_000)
            machine.launch(48_000)
            read(machine, "nvidia")
    assert [found.code for found in run_rules([ScalarRead()], machine.facts(), debug=True).findings] == codes
