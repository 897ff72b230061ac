"""EF021: distances and products of all pairs through a tensor of their vectors."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from support.autograd_steps import Event, is_silent, node, operator, steps, the

from traceopt.analyzer.facts import Facts
from traceopt.result.experiments import AllPairs, Compared, Comparison
from traceopt.rules.catalogue.ef021_broadcast_pairs import BroadcastPairs
from traceopt.testing import events as build

LEFT, RIGHT, PAIRS = [64, 1, 16], [1, 32, 16], [64, 32, 16]
LAST = ("", "[-1]", "False", "")
NAMES = {"aten::sub": "Sub", "aten::pow": "Pow", "aten::sum": "Sum", "aten::mul": "Mul", "aten::abs": "Abs"}


def chain(*calls: tuple[str, list[Any], tuple[str, ...]]) -> list[Event]:
    """Operators of a millisecond each on one line, and their backward nodes of a millisecond each."""
    events = [build.python("train.py(9): distances", 0, 5_000)]
    for at, (name, dims, arguments) in enumerate(calls):
        events.append(operator(name, 100 + 1_010 * at, 1_000, *dims, arguments=arguments, number=5 + at))
        events += node(f"{NAMES.get(name, 'Other')}Backward0", 12_000 - 1_010 * at, 1_000, 5 + at)
    return events


DIFFERENCE = ("aten::sub", [LEFT, RIGHT, []], ("", "", "1"))
SQUARE = ("aten::pow", [PAIRS, []], ("", "2"))
SUM = ("aten::sum", [PAIRS, [], [], []], LAST)
SQUARED = (DIFFERENCE, SQUARE, SUM)


def test_fires_on_squared_distances_forward_and_backward() -> None:
    found = the(BroadcastPairs, steps(chain(*SQUARED)))
    assert found.title == "Compute squared distances with a matmul"
    assert "a tensor of 64 x 32 x 16 numbers" in found.why
    assert "This takes 6.0 ms of each 20.0 ms step, forward and backward." in found.why
    assert found.saving is not None
    assert found.saving.est_us == pytest.approx(0.93 * 6_000, rel=0.02)
    assert [(one.file, one.line) for one in found.locations] == [("train.py", 9)]


def test_both_forms_are_measured_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    now = AllPairs(1, 64, 32, 16, "squared", "fp32", backward=True)
    comparison = Comparison(now, replace(now, by_matmul=True))
    saving = the(BroadcastPairs, steps(chain(*SQUARED))).saving
    assert saving is not None
    assert saving.experiments == (comparison,)
    monkeypatch.setattr(Facts, "compared", {comparison: Compared(comparison, 4e6, 1e6, 0.0)})
    saving = the(BroadcastPairs, steps(chain(*SQUARED))).saving
    assert saving is not None
    assert saving.est_us == pytest.approx(0.75 * 6_000, rel=0.02)


@pytest.mark.parametrize(
    ("calls", "fix"),
    [
        pytest.param((DIFFERENCE, ("aten::mul", [PAIRS, PAIRS], ("", "")), SUM), "x.pow(2)", id="d * d"),
        pytest.param((DIFFERENCE, SQUARE, ("aten::mean", [PAIRS], ("", "[2]", "False", ""))), "x.pow(2)", id="a mean"),
        pytest.param(
            (("aten::sub", [LEFT, [32, 16], []], ("", "", "1")), SQUARE, SUM), "x.pow(2)", id="one side is unsqueezed"
        ),
        pytest.param(
            (DIFFERENCE, ("aten::linalg_vector_norm", [PAIRS], ("", "2", "[-1]"))), "cdist(x, y)", id="a norm"
        ),
        pytest.param(
            (DIFFERENCE, ("aten::linalg_vector_norm", [PAIRS], ("", "1", "[2]"))), "cdist(x, y, p=1)", id="a 1-norm"
        ),
        pytest.param((DIFFERENCE, ("aten::abs", [PAIRS], ("",)), SUM), "cdist(x, y, p=1)", id="absolute differences"),
        pytest.param((("aten::mul", [LEFT, RIGHT], ("", "")), SUM), "x @ y.mT", id="products"),
        pytest.param((("aten::cosine_similarity", [LEFT, RIGHT], ("", "", "-1")),), "F.normalize", id="cosines"),
        pytest.param((("aten::pairwise_distance", [LEFT, RIGHT], ("", "", "2.")),), "cdist(x, y)", id="distances"),
        pytest.param((DIFFERENCE, ("aten::div", [PAIRS, [16]], ("", "")), SQUARE, SUM), "x.pow(2)", id="scaled"),
        pytest.param(
            (
                ("aten::expand", [LEFT, []], ("", "[64, 32, 16]", "False")),
                ("aten::expand", [RIGHT, []], ("", "[64, 32, 16]", "False")),
                ("aten::sub", [PAIRS, PAIRS, []], ("", "", "1")),
                SQUARE,
                SUM,
            ),
            "x.pow(2)",
            id="both sides are expanded first",
        ),
    ],
)
def test_names_the_form_without_a_vector_for_each_pair(calls: tuple[Any, ...], fix: str) -> None:
    assert fix in (the(BroadcastPairs, steps(chain(*calls))).fix.code or "")


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param((DIFFERENCE, ("aten::mul", [PAIRS, [64, 32, 1]], ("", "")), SQUARE, SUM), id="weights of pairs"),
        pytest.param((*SQUARED, ("aten::mul", [PAIRS, []], ("", ""))), id="the differences are used again"),
        pytest.param((DIFFERENCE, SQUARE, ("aten::sum", [PAIRS], ("", "[1]"))), id="summed over the other vectors"),
        pytest.param((DIFFERENCE, SQUARE, ("aten::sum", [PAIRS], ("", ""))), id="summed over everything"),
        pytest.param((DIFFERENCE, ("aten::pow", [PAIRS, []], ("", "4")), SUM), id="another power"),
        pytest.param((DIFFERENCE, ("aten::exp", [PAIRS], ("",)), SUM), id="another function"),
        pytest.param(
            (("aten::sub", [PAIRS, [1, 1, 16], []], ("", "", "1")), SQUARE, SUM), id="distances to one vector"
        ),
        pytest.param((("aten::sub", [PAIRS, PAIRS, []], ("", "", "1")), SQUARE, SUM), id="two tensors of this size"),
        pytest.param((("aten::mul", [LEFT, [1, 32, 1]], ("", "")), SUM), id="weights"),
        pytest.param((("aten::cdist", [[64, 16], [32, 16]], ("", "", "2.")),), id="torch.cdist"),
    ],
)
def test_silent_where_no_other_form_is_the_same(calls: tuple[Any, ...]) -> None:
    assert is_silent(BroadcastPairs, steps(chain(*calls)))


def test_fires_on_a_gpu() -> None:
    found = the(BroadcastPairs, steps(chain(*SQUARED), gpu=True))
    assert found.saving is not None
    assert found.saving.est_us == pytest.approx(5_580, rel=0.02)
