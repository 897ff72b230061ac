"""EF029: log-probabilities are multiplied by a one-hot matrix."""

from __future__ import annotations

import pytest
from support.autograd_steps import Event, is_silent, node, operator, steps, the

from traceopt.rules.catalogue.ef029_one_hot_loss import OneHotLoss
from traceopt.testing import events as build

SHAPE = [64, 1_000]


def one_hot() -> list[Event]:
    return [
        build.python("loss.py(9): nll", 0, 7_000),
        operator("aten::one_hot", 100, 900, SHAPE[:1], []),
        operator("aten::scatter_", 800, 100, SHAPE, [], [64, 1], []),
        operator("aten::to", 1_100, 500, SHAPE),
    ]


def loss(name: str = "aten::log_softmax", factor: list[int] | None = None) -> list[Event]:
    """The log-softmax takes 1 ms, and all after it 2 ms, with 3 ms in the backward pass."""
    return [
        operator(name, 2_000, 1_000, SHAPE, number=3),
        operator("aten::mul", 3_100, 1_000, SHAPE, factor or SHAPE, number=4),
        operator("aten::sum", 4_200, 1_000, SHAPE, number=5),
        operator("aten::neg", 5_300, 10, SHAPE[:1], number=6),
        *node("SumBackward1", 8_000, 1_000, 5),
        *node("MulBackward0", 9_100, 2_000, 4),
        *node("LogSoftmaxBackward0", 11_200, 1_000, 3),
    ]


def test_fires_on_all_but_the_log_softmax() -> None:
    found = the(OneHotLoss, steps(one_hot(), loss()))
    assert "a one-hot matrix with 1,000 columns" in found.why
    assert "this takes 6.4 ms of each 20.0 ms step" in found.why
    assert found.saving is not None
    assert found.saving.est_us == pytest.approx(0.9 * 6_400, rel=0.02)
    assert [(one.file, one.line) for one in found.locations] == [("loss.py", 9)]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((loss(),), id="no one-hot matrix"),
        pytest.param((one_hot(), loss("aten::relu")), id="no log-softmax: Dice, or a squared error"),
        pytest.param((one_hot(), loss(factor=[1_000])), id="weights of classes"),
        pytest.param(
            (one_hot(), loss(), [operator("aten::softmax", 6_000, 500, SHAPE)]), id="soft targets of a teacher"
        ),
        pytest.param((loss(), [event | {"ts": event["ts"] + 6_000} for event in one_hot()[1:]]), id="made later"),
    ],
)
def test_silent_where_the_product_may_be_another_one(parts: tuple[list[Event], ...]) -> None:
    assert is_silent(OneHotLoss, steps(*parts))
