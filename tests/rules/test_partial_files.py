"""What a file lacks makes its findings less sure: dropping events never makes one surer or dearer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.findings import document_of

from traceopt.result.document import Result
from traceopt.rules.registry import builtin_rules
from traceopt.testing import Machine, assert_finds
from traceopt.testing.machine import A100, facts_of

RULES = {rule.code: rule for rule in builtin_rules()}


def confidence(result: Result, code: str) -> str:
    [found] = [one for one in result.findings if one.code == code and one.saving is not None]
    return found.confidence


def events(machine: Machine) -> list[dict[str, Any]]:
    recorded: list[dict[str, Any]] = json.loads(machine.to_bytes())["traceEvents"]
    return recorded


def launch_bound(steps: int) -> Machine:
    machine = Machine(A100)
    for _ in range(steps):
        with machine.step():
            for _ in range(60):
                machine.work(40, "aten::add")
                machine.launch(10, name="vectorized_elementwise_kernel")
            machine.synchronize()
    return machine


def copied_first(copy_us: float, compute_us: float, memory: str = "Pinned") -> Machine:
    """Each step copies its batch from host memory, then computes."""
    machine = Machine(A100)
    for _ in range(4):
        with machine.step():
            machine.launch(copy_us)
            machine.events[-2]["name"] = "cudaMemcpyAsync"
            machine.events[-1] |= {"name": f"Memcpy HtoD ({memory} -> Device)", "cat": "gpu_memcpy"}
            machine.launch(compute_us)
            machine.synchronize()
    return machine


def test_one_step_may_not_recur_so_its_findings_are_less_sure() -> None:
    sure, less = (confidence(document_of(launch_bound(steps).facts()), "LB002") for steps in (6, 1))
    assert (sure, less) == ("high", "medium")


def test_savings_of_a_file_without_launches_are_least_sure() -> None:
    whole = events(copied_first(5_000, 10_000, "Pageable"))
    host = ("cuda_runtime", "ac2g", "cpu_op")
    result = document_of(facts_of([event for event in whole if event.get("cat") not in host]))
    assert confidence(result, "DL003") == "low"


@pytest.mark.parametrize("lacks", [(), ("cuda_runtime", "ac2g", "cpu_op")])
def test_compute_hides_no_copy_that_is_longer_than_it(lacks: tuple[str, ...]) -> None:
    """10 ms of copies cannot hide behind 2 ms of compute, with a replay and without."""
    left = [event for event in events(copied_first(10_000, 2_000)) if event.get("cat") not in lacks]
    finding = assert_finds(RULES["DL004"], facts_of(left))
    assert finding.saving is not None
    assert finding.saving.est_us <= 0.9 * 2_000 * 1.01
    assert "at most 2.0 ms" in finding.why


def test_collectives_are_compared_without_host_events() -> None:
    machine = Machine(A100)
    with machine.step():
        for kind in ("AllGather", "ReduceScatter"):
            machine.launch(500, name=f"ncclDevKernel_{kind}(x)", stream=20)
    facts = facts_of([event for event in events(machine) if event.get("cat") == "kernel"])
    assert len(facts.collectives) == 2
    assert facts.serialized_collectives == []


def test_findings_of_a_file_that_lacks_most_kernels_are_least_sure() -> None:
    machine = Machine(A100)
    for _ in range(4):
        with machine.step():
            for _ in range(20):
                machine.work(40)
                machine.launch(60, name="ampere_sgemm_128x64_tn")
            machine.synchronize()
            for _ in range(200):
                machine.call("cudaLaunchKernel", 5)
    facts = machine.facts()
    assert facts.state is not None
    assert facts.state.name == "lost_kernels"
    assert confidence(document_of(facts), "TC001") == "low"
