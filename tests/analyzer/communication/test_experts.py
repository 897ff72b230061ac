"""Experts on several ranks: their tokens, and the rank whose experts get too many."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.experts import LAYERS, US_PER_TOKEN, experts, step_us
from tests.support.pipelines import RECORDED
from traceopt.api import analyze
from traceopt.result.document import Result
from traceopt.testing import A100, Machine

BACKWARD = "autograd::engine::evaluate_function: ExchangeBackward0"
HOT = [3 * 512, 512, 512, 512]


def result_of(ranks: list[Machine], folder: Path) -> Result:
    for number, machine in enumerate(ranks):
        (folder / f"rank{number}.pt.trace.json").write_bytes(machine.to_bytes())
    return analyze(str(folder))


def test_the_hot_expert_is_named_first_with_what_balance_saves(tmp_path: Path) -> None:
    result = result_of(experts(HOT), tmp_path)
    first = result.findings[0]
    assert (first.code, first.title, first.ranks) == ("CM004", "Balance the experts", [0])
    assert "Its experts get 2.0 times the mean tokens." in first.why
    assert first.saving is not None
    assert first.saving.est_us == pytest.approx(step_us(HOT) - step_us([768] * 4), rel=0.15)
    rows = result.communication.experts
    assert [row.tokens_per_step for row in rows] == [2 * LAYERS * tokens for tokens in HOT]
    assert [round(row.of_mean, 2) for row in rows] == [2.0, 0.67, 0.67, 0.67]
    assert rows[1].compute_us_per_step == pytest.approx(3 * LAYERS * 512 * US_PER_TOKEN, rel=0.02)


def test_balanced_experts_are_no_finding(tmp_path: Path) -> None:
    assert all(finding.code != "CM004" for finding in result_of(experts([512] * 4), tmp_path).findings)


@pytest.mark.parametrize("sizes", [[], [128] * 4])
def test_exchanges_of_equal_parts_are_not_of_experts(sizes: list[int]) -> None:
    """As in the attention of Ulysses."""
    (rank, *_) = experts(HOT)
    for event in rank.events:
        if "Concrete Inputs" in event["args"]:
            event["args"]["Concrete Inputs"][3:5] = [str(sizes)] * 2
    assert rank.facts().expert_load is None


def test_embeddings_and_their_gradients_are_not_of_experts() -> None:
    """The backward pass sends back what the forward brought, after all other compute."""
    machine = Machine(A100, distributedInfo={"rank": 0, "world_size": 2})
    for _ in range(4):
        with machine.step():
            for node, sizes in (("forward", ["[9, 5]", "[7, 9]"]), (BACKWARD, ["[7, 9]", "[9, 5]"])):
                concrete = {"Concrete Inputs": ["", "", "", *sizes, "False"]}
                with machine.operator(node), machine.operator("c10d::alltoall_base_", **concrete):
                    machine.launch(200, name="ncclDevKernel_SendRecv(x)", **{"Collective name": "all_to_allv"})
                machine.launch(900)
            machine.synchronize()
    assert machine.facts().expert_load is None


def test_recorded_experts_on_the_cpu() -> None:
    rows = analyze(str(RECORDED / "experts")).communication.experts
    assert [(row.rank, row.passes, row.tokens_per_step) for row in rows] == [(0, 2, 4 * 768), (1, 2, 4 * 256)]
