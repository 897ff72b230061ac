"""CM011 pipeline-bubble: use more micro-batches or a schedule with a smaller pipeline bubble."""

from __future__ import annotations

import pytest
from support.collectives import RULES, collective, machine

from traceopt.document.rank_document import rank_document
from traceopt.rules.engine import run_rules
from traceopt.testing import Machine, answer, assert_finds, assert_silent


def stage(*received_us: float, op: str = "c10d::recv_") -> Machine:
    """A stage that receives the input of each micro-batch, and computes 4 ms on it."""
    rank = machine()
    for _ in range(4):
        with rank.step(), rank.python("train.py(9): train"):
            for us in received_us:
                with rank.operator(op):
                    collective(rank, us, "recv", name="ncclDevKernel_SendRecv(x)")
                rank.synchronize()
                rank.launch(4_000)
            rank.synchronize()
    return rank


def test_fires_on_what_is_longer_than_a_transfer() -> None:
    finding = assert_finds(RULES["CM011"], stage(9_000, 100, 100), saving_us=0.5 * 8_900)
    assert "The GPU waits 8.9 ms" in finding.why
    assert_silent(RULES["CM001"], stage(9_000, 100, 100))  # no compute can hide a wait


@pytest.mark.parametrize(
    ("received_us", "op"),
    [
        pytest.param((100, 100, 100), "c10d::recv_", id="short transfers"),
        pytest.param((9_000, 100, 100), "c10d::alltoall_base_", id="an all-to-all by the same kernels"),
    ],
)
def test_silent(received_us: tuple[float, ...], op: str) -> None:
    assert answer(RULES["CM011"], stage(*received_us, op=op))[1] == []


def test_the_verdict_says_what_the_gpu_waits_for() -> None:
    facts = stage(9_000, 100, 100).facts()
    said = rank_document(facts, run_rules([RULES["CM011"]()], facts, debug=True)).verdict
    assert said.startswith("The GPU waits for other pipeline stages for 42% of the step.")
