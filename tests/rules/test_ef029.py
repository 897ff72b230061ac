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


def scattered(number: str = "0.1", columns: int = 1, copied: str = "aten::fill_") -> list[Event]:
    """A copy that is filled, and one element of each row."""
    return [
        build.python("loss.py(9): nll", 0, 7_000),
        operator("aten::clone", 100, 600, SHAPE, []),
        operator(copied, 800, 100, SHAPE, [], arguments=["", number]),
        operator("aten::scatter_", 1_000, 100, SHAPE, [], [64, columns], []),
    ]


def divergence(log_target: bool = False) -> list[Event]:
    """The log-softmax takes 1 ms. In the KL divergence, 3 ms are for the sum of products, as cross entropy needs it."""
    return [
        operator("aten::log_softmax", 2_000, 1_000, SHAPE, number=3),
        operator(
            "aten::kl_div", 3_100, 3_800, SHAPE, SHAPE, [], [], arguments=["", "", "2", str(log_target)], number=4
        ),
        operator("aten::mul", 3_150, 1_000, SHAPE, SHAPE, number=4),
        operator("aten::xlogy", 4_200, 1_500, SHAPE, SHAPE, number=5),
        operator("aten::sub", 5_750, 500, SHAPE, SHAPE, number=5),
        operator("aten::sum", 6_300, 500, SHAPE, number=6),
        *node("SubBackward0", 9_100, 700, 5),
        *node("MulBackward0", 10_000, 1_000, 4),
        *node("LogSoftmaxBackward0", 11_200, 1_000, 3),
    ]


def test_one_class_scattered_into_zeros_is_one_hot() -> None:
    found = the(OneHotLoss, steps(scattered("0."), divergence()))
    assert "a one-hot matrix with 1,000 columns" in found.why
    assert "this takes 6.3 ms of each 20.0 ms step" in found.why  # 0.8 ms to make it, 3.8 ms and 1.7 ms to use it


def test_smoothed_targets_cost_only_what_cross_entropy_does_not_do() -> None:
    found = the(OneHotLoss, steps(scattered(), divergence()))
    assert "a smoothed one-hot matrix with 1,000 columns" in found.why
    assert "take 3.3 ms of each 20.0 ms step" in found.why  # the copy, xlogy, sub and its node
    assert "label_smoothing" in str(found.fix.code)
    assert [(one.file, one.line) for one in found.locations] == [("loss.py", 9)]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((scattered(columns=2), divergence()), id="several classes in a row"),
        pytest.param((scattered(copied="aten::masked_fill_"), divergence()), id="other numbers stay"),
        pytest.param((scattered(), divergence(log_target=True)), id="the target is logarithms"),
        pytest.param((scattered()[:2], scattered()[3:], divergence()), id="a copy of what the model computed"),
        pytest.param(([scattered()[0], *scattered()[2:]], loss()), id="as little work as cross entropy"),
    ],
)
def test_silent_where_ids_do_not_replace_the_matrix(parts: tuple[list[Event], ...]) -> None:
    assert is_silent(OneHotLoss, steps(*parts))
