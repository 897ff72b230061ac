"""EF020: few rows of a large table are looked up, and its gradient has all of them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.autograd_steps import Event, accumulation, is_silent, node, operator, steps, the

from traceopt.analyzer.facts import Facts
from traceopt.result.experiments import Compared, Comparison, Lookup
from traceopt.result.words.effort_and_risk import Risk
from traceopt.rules.catalogue.ef020_dense_embedding_gradient import DenseEmbeddingGradient
from traceopt.rules.fixes.optimizers import fusible
from traceopt.testing import events as build

ROWS, WIDTH = 100_000, 16
TABLE, HEAD = [ROWS, WIDTH], [4, WIDTH]
LOOKUP = ("", "", "-1", "False", "False")
ADDS = [operator("aten::add_", 16_100, 1_800, TABLE, TABLE, []), operator("aten::add_", 17_950, 20, HEAD, HEAD, [])]
NORM = [operator("aten::_foreach_norm", 15_000, 500, [TABLE, HEAD], [], [])]


def lookup(
    rows: int = ROWS, ids: int = 64, name: str = "aten::embedding", arguments: tuple[str, ...] = LOOKUP
) -> list[Event]:
    return [
        build.python("model.py(9): forward", 0, 7_900),
        operator(name, 100, 200, [rows, WIDTH], [8, ids // 8], arguments=arguments, number=5),
    ]


def backward(rows: int = ROWS, ids: int = 64) -> list[Event]:
    """The node takes 8 ms. The table has almost all of the gradients' elements, and so of the 2 ms of the optimizer."""
    return [
        *accumulation(4_900, HEAD),
        *node("EmbeddingBackward0", 5_000, 8_000, 5, [8, ids // 8, WIDTH]),
        *accumulation(13_100, [rows, WIDTH]),
    ]


def test_fires_on_the_gradient_and_the_update_of_the_table() -> None:
    found = the(DenseEmbeddingGradient, steps(lookup(), backward(), update=ADDS))
    assert "at most <0.1% of the rows of a table of up to 100,000 x 16 numbers" in found.why
    assert "this takes 10.0 ms of each 20.0 ms step" in found.why
    assert found.saving is not None
    assert found.saving.est_us == pytest.approx(0.95 * 10_020, rel=0.02)
    assert found.saving.low_us < 8_000 < 10_000 < found.saving.high_us
    assert [(one.file, one.line) for one in found.locations] == [("model.py", 9)]


def test_sparse_gradients_are_measured_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    now = Lookup(1, ROWS, WIDTH, 64, "fp32", updated=True)
    comparison = Comparison(now, replace(now, sparse=True))
    parts = lookup(), backward()
    saving = the(DenseEmbeddingGradient, steps(*parts, update=ADDS)).saving
    assert saving is not None
    assert saving.experiments == (comparison,)
    monkeypatch.setattr(Facts, "compared", {comparison: Compared(comparison, 4e6, 1e6, 0.0)})
    saving = the(DenseEmbeddingGradient, steps(*parts, update=ADDS)).saving
    assert saving is not None
    assert saving.est_us == pytest.approx(0.75 * 10_020, rel=0.02)


def test_plain_sgd_gets_the_argument_as_an_edit() -> None:
    found = the(DenseEmbeddingGradient, steps(lookup(), backward(), update=ADDS))
    assert found.fix.settings == {"nn.Embedding.sparse": "True"}
    assert found.risk == Risk.NONE


@pytest.mark.parametrize(
    "more",
    [
        pytest.param([operator("aten::mul_", 17_900, 20, TABLE, [])], id="momentum or weight decay"),
        pytest.param(NORM, id="gradients are clipped, which fails if they are sparse"),
    ],
)
def test_a_person_decides_if_more_than_sgd_uses_the_gradient(more: list[Event]) -> None:
    found = the(DenseEmbeddingGradient, steps(lookup(), backward(), more, update=ADDS))
    assert found.fix.edits == []
    assert found.fix.code == "nn.Embedding(..., sparse=True)"
    assert ("such as clip_grad_norm_, has to leave the table out" in found.fix.text) == (more is NORM)
    assert found.risk == Risk.CONVERGENCE


def test_sgd_is_not_told_to_fuse_as_well() -> None:
    """The fused SGD raises an error for sparse gradients."""
    facts = steps(lookup(), backward(), update=ADDS)
    assert "SGD" not in fusible(facts)
    assert "SGD" in fusible(steps(lookup(128), backward(128), update=ADDS))


def test_adam_does_not_take_sparse_gradients() -> None:
    found = the(DenseEmbeddingGradient, steps(lookup(), backward(), update=ADDS, optimizer="Adam"))
    assert "All others of torch.optim but SGD and Adagrad raise an error" in found.fix.text
    assert "SparseAdam" in (found.fix.code or "")
    assert found.fix.edits == []
    assert found.risk == Risk.CONVERGENCE


BAG = ("", "", "", "False", "1", "False", "", "False", "")
TIED = [operator("aten::linear", 3_000, 500, [64, WIDTH], TABLE, number=9)]


@pytest.mark.parametrize("name", ["aten::embedding_bag", "aten::index", "aten::index_select"])
def test_other_ways_to_look_up_count(name: str) -> None:
    arguments = BAG if name == "aten::embedding_bag" else ()
    assert the(DenseEmbeddingGradient, steps(lookup(name=name, arguments=arguments), backward(), update=ADDS))


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((lookup(128), backward(128)), id="a small table, of which half is read"),
        pytest.param((lookup(900), backward(900)), id="a small table"),
        pytest.param((lookup(arguments=("", "", "-1", "False", "True")), backward()), id="sparse already"),
        pytest.param((lookup(arguments=("", "", "-1", "True", "False")), backward()), id="scaled by frequency"),
        pytest.param(
            (lookup(name="aten::embedding_bag", arguments=(*BAG[:4], "2", *BAG[5:])), backward()),
            id="the largest of a bag",
        ),
        pytest.param((lookup(), TIED, backward()), id="the output layer has the same weights"),
        pytest.param(
            (lookup(), [operator("aten::pow", 3_000, 500, TABLE, [], number=9)], backward()), id="a penalty of all rows"
        ),
        pytest.param((lookup(), backward()[:4]), id="activations, which have no gradient of their own"),
        pytest.param((lookup(),), id="no backward pass"),
    ],
)
def test_silent_where_a_sparse_gradient_does_not_help(parts: tuple[list[Event], ...]) -> None:
    assert is_silent(DenseEmbeddingGradient, steps(*parts, update=ADDS))


def test_an_output_layer_of_the_same_shape_is_another_parameter() -> None:
    assert the(DenseEmbeddingGradient, steps(lookup(), TIED, backward(), accumulation(14_000, TABLE), update=ADDS))


def test_silent_if_ranks_average_the_gradients() -> None:
    ranks = {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8}}
    assert is_silent(DenseEmbeddingGradient, steps(lookup(), backward(), update=ADDS, **ranks))


def test_fires_on_a_gpu() -> None:
    found = the(DenseEmbeddingGradient, steps(lookup(), backward(), update=ADDS, gpu=True))
    assert found.saving is not None
    assert found.saving.est_us == pytest.approx(9_513, rel=0.02)
