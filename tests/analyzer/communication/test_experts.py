"""Experts on several ranks: their tokens, and the rank whose experts get too many."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.experts import LAYERS, US_PER_TOKEN, experts, step_us
from tests.support.pipelines import RECORDED
from traceopt.analysis import Analysis
from traceopt.api import analyze
from traceopt.testing import A100, Machine

BACKWARD = "autograd::engine::evaluate_function: ExchangeBackward0"
HOT = [3 * 512, 512, 512, 512]


def result_of(ranks: list[Machine], folder: Path) -> Analysis:
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


def test_the_most_uneven_layer_is_named(tmp_path: Path) -> None:
    result = result_of(experts([512] * 4, [4 * 512, 256, 512, 256], modules=True), tmp_path)
    rows = result.communication.expert_layers
    assert [(row.layer, row.hottest_rank, row.tokens_per_step) for row in rows] == [
        ("MoELayer_0", 0, 512),
        ("MoELayer_1", 0, 2048),
    ]
    assert rows[1].of_mean == pytest.approx(2048 / 768, rel=0.01)
    assert "The most uneven layer is MoELayer_1, with 2.7 times." in result.findings[0].why


def test_layers_are_unknown_without_modules_and_one_rank_has_no_hottest(tmp_path: Path) -> None:
    assert result_of(experts(HOT), tmp_path).communication.expert_layers == []
    (alone, *_) = experts(HOT, modules=True)
    (tmp_path / "alone").mkdir()
    assert result_of([alone], tmp_path / "alone").communication.expert_layers == []


@pytest.mark.parametrize(
    ("frame", "sizes"),
    [
        ("megatron/core/transformer/moe/moe_utils.py(151): get_capacity", None),
        ("/opt/deepspeed/moe/sharded_moe.py(290): top2gating", [128] * 4),
    ],
)
def test_a_capacity_of_experts_is_named(frame: str, sizes: list[int] | None, tmp_path: Path) -> None:
    ranks = experts(HOT)
    for machine in ranks:
        with machine.python(frame):
            machine.launch(1)
        for event in machine.events:
            if sizes and "Concrete Inputs" in event["args"]:
                event["args"]["Concrete Inputs"][3:5] = [str(sizes)] * 2
    result = result_of(ranks, tmp_path)
    assert result.communication.expert_capacity == frame
    assert f"The experts have a capacity ({frame})" in result.to_html()


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
