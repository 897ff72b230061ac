"""MM007: activations are recomputed although there is memory to store them, on a GPU or in a CPU-only run."""

from __future__ import annotations

from statistics import median

import pytest
from support.findings import found as found_in
from support.findings import saving_of
from support.jobs import facts_with
from support.traces import GetExample

from traceopt.analyzer.facts import Facts
from traceopt.result.finding import Finding
from traceopt.result.words.quantities import size
from traceopt.rules.catalogue.mm007_checkpointing_with_headroom import CheckpointingWithHeadroom
from traceopt.testing import answer
from traceopt.testing import events as build

STEP_US, STEPS, MB = 20_000, 4, 1_000_000
NODE = "autograd::engine::evaluate_function: AddmmBackward0"
STORED = 100 * MB


def memory(at: float, count: int, total: int) -> build.Json:
    args = {"Bytes": count, "Addr": 64, "Total Allocated": total, "Total Reserved": 0, "Device Type": 0}
    return {"ph": "i", "s": "t", "name": "[memory]", "pid": 100, "tid": 1, "ts": at, "args": args | {"Device Id": -1}}


def facts(
    *, again: bool = True, available: int | None = 1_000 * MB, ranks: int = 1, recorded: range = range(STEPS)
) -> Facts:
    """The backward pass of each step runs a layer for 4 ms again, and then its gradients. `recorded`: the steps whose
    memory was recorded.
    """
    events: list[build.Json] = []
    for step in range(STEPS):
        start = step * STEP_US
        ran = {"Sequence number": 7, "Fwd thread id": 1}
        events += [
            build.annotation(f"ProfilerStep#{step}", start, STEP_US),
            build.python("model.py(24): forward", start, 4_900),
            build.python("torch/utils/checkpoint.py(355): checkpoint", start + 10, 4_800),
            build.op("aten::linear", start + 100, 4_000, **{"Sequence number": 7, "Fwd thread id": 0}),
            build.op(NODE, start + 5_000, 12_000, **ran),
            build.op("AddmmBackward0", start + 5_001, 11_990, **ran),
            build.op("aten::mm", start + 10_000, 6_000),
            build.annotation("Optimizer.step#SGD.step", start + 18_000, 1_000),
        ]
        if again:
            numbered = {"Sequence number": 9, "Fwd thread id": 0}
            events += [
                build.op("aten::linear", start + 5_100, 3_000, **numbered),
                build.op("aten::gelu", start + 8_100, 1_000, **numbered),  # a backward formula may call it as well
            ]
        if step in recorded:
            events += [memory(start + 5_200, STORED, 2 * STORED), memory(start + 16_500, -STORED, STORED)]
    environment = {"available_memory_bytes": available, "local_world_size": ranks, "cpu_count": 2}
    return Facts(build.read(build.document(events, traceopt={"environment": environment})))


def the(found: Facts) -> Finding:
    check, findings = answer(CheckpointingWithHeadroom, found)
    return findings[0] if findings else pytest.fail(check.reason or "")


def test_fires_on_the_recomputation_where_the_memory_is_available() -> None:
    found = the(facts())
    assert "recomputes activations for 4.0 ms of each 20.0 ms step. Storing them takes 95.4 MiB." in found.why
    assert found.saving is not None
    assert found.saving.est_us == pytest.approx(3_800, rel=0.01)
    assert found.saving.low_us < 4_000 < found.saving.high_us
    assert [(one.file, one.line) for one in found.locations] == [("model.py", 24)]
    assert found.fix.text == "Call the layers without checkpoint()."


def test_the_steps_with_recorded_memory_count() -> None:
    assert "Storing them takes 95.4 MiB." in the(facts(recorded=range(1))).why


def test_no_saving_if_the_memory_is_not_known() -> None:
    assert the(facts(available=None)).saving is None
    assert the(facts(recorded=range(0))).saving is None


def test_a_part_of_the_layers_if_they_do_not_all_fit() -> None:
    """Half of 300 MB, less what the steps use already, is half of what storing takes."""
    for available in (300 * MB, 380 * MB):
        found = the(facts(available=available))
        assert found.fix.text == "Checkpoint only every second layer."
        assert found.saving is not None
        assert found.saving.est_us == pytest.approx(1_900, rel=0.01)
    assert the(facts(available=260 * MB)).fix.text == "Checkpoint only 70% of the layers."


@pytest.mark.parametrize("found", [facts(available=210 * MB), facts(ranks=5), facts(again=False)])
def test_silent_without_memory_or_without_recomputation(found: Facts) -> None:
    check, findings = answer(CheckpointingWithHeadroom, found)
    assert not findings, findings[0].why
    assert check.status in ("passed", "not_applicable")


class TestOnGpu:
    def test_costs_what_was_planted(self, example: GetExample) -> None:
        subject = example("checkpointing")
        (finding,) = found_in("MM007", subject.facts)
        saving = saving_of(finding)
        cost = median(subject.planted.step_us) - median(subject.planted.fixed_step_us)
        assert saving.low_us <= cost <= saving.high_us * 1.03
        assert finding.impact == "high"
        assert subject.planted.site in [str(place) for place in finding.locations]

    def test_the_memory_to_store_activations(self, example: GetExample) -> None:
        """The twin keeps it."""
        (finding,) = found_in("MM007", example("checkpointing").facts)
        kept, dropped = (example("checkpointing", fixed=fixed).facts.memory for fixed in (True, False))
        assert kept is not None
        assert dropped is not None
        assert f"storing them takes {size((kept.peak_allocated or 0) - (dropped.peak_allocated or 0))}" in finding.why

    def test_silent_on_the_twin_and_on_a_full_device(self, example: GetExample) -> None:
        assert found_in("MM007", example("checkpointing", fixed=True).facts) == []
        assert found_in("MM007", facts_with(checkpointing=True, reserved_bytes=39_000_000_000)) == []

    def test_hardware_and_model_utilization(self, example: GetExample) -> None:
        flops = example("checkpointing").facts.flops
        same = example("checkpointing", fixed=True).facts.flops
        assert flops.model == pytest.approx(same.model)
        assert flops.executed > 1.2 * same.executed
