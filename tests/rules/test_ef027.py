"""EF027: masks and tables that each layer builds again."""

from __future__ import annotations

import pytest
from support.autograd_steps import Event, is_silent, node, operator, steps, the

from traceopt.rules.catalogue.ef027_repeated_constant import RepeatedConstant
from traceopt.testing import events as build

LENGTH = [512, 512]


def layers(count: int = 3, between: str = "aten::mul", last: str = "aten::add", grows: bool = False) -> list[Event]:
    """Each layer builds a mask in 1.2 ms, and adds its scores, which have a gradient."""
    events = [build.python("model.py(9): forward", 0, 2_000 * count + 10)]
    for layer in range(count):
        at, shape = 2_000 * layer + 10, [512 + layer, 512] if grows else LENGTH
        events += [
            operator("aten::ones", at, 400, arguments=("[512, 512]",), number=layer),
            operator("aten::triu", at + 400, 400, shape, arguments=("", "1"), number=layer),
            operator(between, at + 800, 400, shape, number=layer),
            operator(last, at + 1_300, 200, shape, shape, number=layer),
            *node("AddBackward0", 10_000 + 100 * layer, 50, layer),
        ]
    return [*events, operator("aten::sum", 2_000 * count + 20, 5, LENGTH, number=count)]


def test_fires_on_a_mask_of_each_layer() -> None:
    found = the(RepeatedConstant, steps(layers()))
    assert "take 3.6 ms of each 20.0 ms step. They run up to 3 times" in found.why
    assert [(one.file, one.line) for one in found.locations] == [("model.py", 9)]
    assert found.saving is not None
    assert found.saving.low_us == 0
    assert found.saving.est_us == pytest.approx(2_400, rel=0.02)
    assert found.saving.high_us == pytest.approx(3_600, rel=0.02)


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(layers(count=1), id="once"),
        pytest.param(layers(grows=True), id="other shapes"),
        pytest.param(layers(between="aten::bernoulli_"), id="random"),
        pytest.param(layers(between="aten::index"), id="data"),
    ],
)
def test_silent_on_what_may_differ(events: list[Event]) -> None:
    assert is_silent(RepeatedConstant, steps(events))
