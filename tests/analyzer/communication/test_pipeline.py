"""Pipelines: the bubble of each stage against its closed form."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.pipelines import Action, Kind, gpipe, interleaved, one_forward_one_backward, pipeline, zero_bubble
from tests.support.pipelines import RECORDED, Order, orders, result_of
from traceopt.analyzer.vocabulary.phases.pipeline_actions import PipelineAction, pipeline_action
from traceopt.api import analyze
from traceopt.testing import A100, Machine

PIPELINE = {"pg_name": "1", "pg_desc": "mesh_pp", "ranks": [0, 1]}


def bubble_of_least(size: int, micro_batches: int, parts: int = 1) -> float:
    return (size - 1) / (parts * micro_batches + size - 1)


@pytest.mark.parametrize(
    ("order", "size", "micro_batches", "name", "share"),
    [
        (gpipe, 4, 16, "GPipe", bubble_of_least(4, 16)),
        (one_forward_one_backward, 2, 2, "1F1B", bubble_of_least(2, 2)),
        (one_forward_one_backward, 4, 8, "1F1B", bubble_of_least(4, 8)),
        (one_forward_one_backward, 8, 32, "1F1B", bubble_of_least(8, 32)),
        (interleaved, 4, 8, "interleaved", bubble_of_least(4, 8, 2)),
        (zero_bubble, 4, 8, "zero bubble", bubble_of_least(4, 8, 3)),
        (zero_bubble, 4, 2, "zero bubble", 5 / (3 * 2 + 5)),
    ],
)
def test_the_bubble_of_equal_stages_is_that_of_the_schedule(
    order: Order, size: int, micro_batches: int, name: str, share: float, tmp_path: Path
) -> None:
    annotated = order is not one_forward_one_backward
    schedule = orders(order, size, micro_batches)
    rows = result_of(schedule, tmp_path, annotated=annotated).communication.pipeline
    assert [row.rank for row in rows] == list(range(size))
    for row in rows:
        assert (row.stages, row.micro_batches) == (size, micro_batches)
        assert row.schedule == name or (row.schedule == "GPipe or 1F1B" and micro_batches <= size)
        assert row.bubble_share == pytest.approx(share, rel=0.02)
        assert row.least_share == pytest.approx(share, rel=0.02)


def test_a_recorded_pipeline_on_the_cpu() -> None:
    """gloo names neither group nor schedule: the file declares one group, and the neighbors show the order."""
    rows = analyze(str(RECORDED / "pipeline")).communication.pipeline
    assert [(row.rank, row.stages, row.micro_batches, row.schedule) for row in rows] == [
        (0, 2, 4, "1F1B"),
        (1, 2, 4, "1F1B"),
    ]
    assert all(row.bubble_us_per_step > 0 for row in rows)


def test_what_more_micro_batches_and_chunks_save(tmp_path: Path) -> None:
    rows = result_of(orders(one_forward_one_backward, 4, 4), tmp_path).communication.pipeline
    for row in rows:
        assert row.doubling_saves_us == pytest.approx(row.bubble_us_per_step / 2, rel=0.03)
        assert row.interleaving_saves_us == pytest.approx(row.bubble_us_per_step / 2, rel=0.03)


@pytest.mark.parametrize("kind", ["F", "B"])
def test_passes_of_one_kind_are_no_schedule(kind: Kind) -> None:
    """As of inference."""
    forward = [[Action(kind, 0, one) for one in range(4)]] * 2
    assert all(machine.facts().pipeline_stage is None for machine in pipeline(forward))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_ring_of_two_is_no_pipeline(rank: int) -> None:
    """Each rank sends and receives at the same time, as in ring attention."""
    machine = Machine(deviceProperties=[A100] * 2, distributedInfo={"rank": rank, "pg_config": [PIPELINE]})
    about = {"Collective name": "recv", "Process Group Name": "1"}
    for _ in range(4):
        with machine.step():
            for name in ("c10d::send", "c10d::recv_") * 3:
                with machine.operator(name, **{"Concrete Inputs": ["", "", str(1 - rank), "0"]}):
                    machine.launch(500, stream=20, name="ncclDevKernel_SendRecv(x)", **about)
                machine.launch(1_000)
            machine.synchronize()
    facts = machine.facts()
    assert len(facts.stage_waits.rows)
    assert facts.pipeline_stage is None


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("Forward 12", PipelineAction("F", 0, 12)),
        ("PP:3W0", PipelineAction("W", 3, 0)),
        ("Forward", None),
        ("PP:0SEND_F1", None),
        ("Forward 1 of 3", None),
    ],
)
def test_names_of_actions(name: str, action: PipelineAction | None) -> None:
    assert pipeline_action(name) == action
