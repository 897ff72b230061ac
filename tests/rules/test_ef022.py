"""EF022: a loop calls autograd for each row of a Jacobian, or for each sample."""

from __future__ import annotations

import pytest
from support.autograd_steps import ENGINE, Event, accumulation, is_silent, node, operator, steps, the

from traceopt.rules.catalogue.ef022_gradient_loop import GradientLoopRule
from traceopt.testing import events as build

ROUNDS, ROUND_US = 12, 500


def loop(*between: tuple[str, str], numbers: int = 2, own_forward: bool = False, rows: int = 1) -> list[Event]:
    """A round calls the engine for 300 us, which runs nodes of 100 us, and then some operators. `numbers`: of the nodes
    of a round. `own_forward`: a linear layer with so many rows runs before each, so that no round repeats nodes.
    """
    events = [build.python("train.py(9): jacobian", 0, ROUNDS * ROUND_US)]
    for one in range(ROUNDS):
        at = one * ROUND_US
        first = 5 + (numbers * one if own_forward else 0)
        for place, (name, argument) in enumerate(between):
            arguments = ("", "0", argument.format(one))
            events.append(operator(name, at + 10 + 20 * place, 15, [4, 8], arguments=arguments))
        if own_forward:
            events.append(operator("aten::linear", at + 120, 40, [rows, 8], [3, 8], number=first))
            events.append(operator("aten::addmm", at + 125, 30, [3], [rows, 8], [8, 3], number=first))
        events.append(build.python(ENGINE, at + 180, 300))
        for place in range(numbers):
            events += node("MulBackward0", at + 185 + 120 * place, 100, first + place)
    return events


PICK = ("aten::select", "{}")


def test_fires_on_the_rows_of_a_jacobian() -> None:
    found = the(GradientLoopRule, steps(loop(PICK, ("aten::sum", ""))))
    assert "for each row of a Jacobian, 12 times per step" in found.why
    assert "torch.func.vmap" in (found.fix.code or "")
    assert found.saving is not None
    whole_us = ROUNDS * ROUND_US - 200
    assert found.saving.high_us == pytest.approx(whole_us * 11 / 12, rel=0.05)
    assert [(one.file, one.line) for one in found.locations] == [("train.py", 9)]


def computing(duration: float) -> list[Event]:
    """An operator of this many microseconds in each node."""
    nodes = [one for one in loop(PICK) if one["name"] == "MulBackward0"]
    return [build.op("aten::mm", one["ts"] + 5, duration) for one in nodes]


def test_long_operators_take_as_long_as_before() -> None:
    short, long = (the(GradientLoopRule, steps(loop(PICK), computing(us))).saving for us in (10, 80))
    assert short is not None
    assert long is not None
    assert long.est_us < 0.8 * short.est_us


def test_the_rows_may_be_split_before_the_loop() -> None:
    split = [operator("aten::unbind", 1, 5, [4, 8])]
    assert the(GradientLoopRule, steps(split, loop(("aten::reshape", ""))))


def test_fires_on_the_gradients_of_single_samples() -> None:
    found = the(GradientLoopRule, steps(loop(PICK, ("aten::mul", ""), own_forward=True)))
    assert "a forward and a backward pass for each sample" in found.why
    assert found.confidence == "low"


def convolving(images: int) -> list[Event]:
    """Rounds that clip the gradients of a convolution as well."""
    sizes = [images, 3, 8, 8], [4, 3, 3, 3]
    return [
        event
        for at in range(0, ROUNDS * ROUND_US, ROUND_US)
        for event in (
            operator("aten::convolution", at + 90, 20, *sizes),
            operator("aten::_foreach_mul_", at + 485, 10, [4]),
        )
    ]


@pytest.mark.parametrize(("images", "silent"), [(1, False), (16, True)])
def test_a_sample_may_be_an_image(images: int, silent: bool) -> None:
    """As where gradients are clipped sample by sample for differential privacy."""
    assert is_silent(GradientLoopRule, steps(loop(PICK, own_forward=True), convolving(images))) is silent


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(loop(("aten::reshape", "")), id="a power iteration"),
        pytest.param(loop(("aten::select", "0")), id="the same row each time"),
        pytest.param(loop(PICK, ("aten::dot", ""), ("aten::mul", "")), id="a solver"),
        pytest.param(loop(PICK, ("aten::mul", "")), id="steps along the gradient"),
        pytest.param(loop(PICK, own_forward=True, rows=16), id="batches"),
        pytest.param(loop(PICK, ("aten::sub_", ""), own_forward=True), id="weights are updated"),
        pytest.param(loop(("aten::sign", ""), own_forward=True), id="an attack on one sample"),
    ],
)
def test_silent_if_rounds_may_need_each_other(events: list[Event]) -> None:
    assert is_silent(GradientLoopRule, steps(events))


def test_silent_if_gradients_are_added_up() -> None:
    """EF009 has advice for losses that share a graph."""
    added = [one for at in range(ROUNDS) for one in accumulation(at * ROUND_US + 450, [3, 8])]
    assert is_silent(GradientLoopRule, steps(loop(PICK), added))


def test_fires_on_a_gpu() -> None:
    found = the(GradientLoopRule, steps(loop(PICK), computing(10), gpu=True))
    assert found.saving is not None
    assert found.saving.est_us == pytest.approx(1_800, rel=0.02)
