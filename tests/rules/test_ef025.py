"""EF025 growing-result: append to a list and concatenate once."""

from __future__ import annotations

import pytest

from traceopt.rules.catalogue.ef025_growing_result import GrowingResult
from traceopt.testing import A100, Machine, answer, assert_finds

Pairs = list[tuple[list[int], list[int]]]
TOOK_US = 400


def appends(pairs: Pairs, *, gpu: bool = False, trains: bool = False) -> Machine:
    """A step for each pair of tensors, which it concatenates; other work takes as long."""
    machine = Machine(A100 if gpu else None)
    for number, pair in enumerate(pairs):
        ids = {"Sequence number": number, "Fwd thread id": 0} if trains else {}
        with machine.step(), machine.python("extract.py(7): extract"):
            with machine.operator("aten::cat", **{"Input Dims": [[list(one) for one in pair], []]}, **ids):
                machine.launch(TOOK_US) if gpu else machine.work(TOOK_US, "aten::copy_")
            machine.launch(TOOK_US) if gpu else machine.work(TOOK_US, "aten::mm")
            if trains:
                name = "autograd::engine::evaluate_function: CatBackward0"
                with machine.operator(name, **{"Sequence number": number, "Fwd thread id": 1}):
                    machine.work(TOOK_US, "aten::narrow")
            if gpu:
                machine.synchronize()
    return machine


def growing(added: int, width: int = 512) -> Pairs:
    return [([added * number, width], [added, width]) for number in range(12, 16)]


@pytest.mark.parametrize("gpu", [True, False])
def test_fires_on_results_that_grow(gpu: bool) -> None:
    finding = assert_finds(GrowingResult, appends(growing(64), gpu=gpu))
    assert "up to 960 rows to add 64" in finding.why
    assert finding.saving is not None
    assert finding.saving.est_us == pytest.approx(0.9 * TOOK_US, rel=0.1)
    assert 0 < finding.saving.low_us <= 0.5 * TOOK_US


@pytest.mark.parametrize("gpu", [True, False])
@pytest.mark.parametrize("axis", [1, 2])
def test_fires_on_keys_that_grow_by_one_token(axis: int, gpu: bool) -> None:
    def keys(tokens: int) -> list[int]:
        return [4, tokens, 8, 64] if axis == 1 else [4, 8, tokens, 64]

    finding = assert_finds(GrowingResult, appends([(keys(n), keys(1)) for n in range(500, 504)], gpu=gpu))
    assert "up to 503 tokens to add 1" in finding.why
    assert finding.title == "Allocate the cache of keys and values once"
    assert finding.saving is not None
    assert finding.saving.est_us == pytest.approx(0.9 * TOOK_US, rel=0.1)


def test_fires_on_steps_in_another_order() -> None:
    """Steps that borrow shapes of a cycle with details may be in any order, or have the same ones."""
    first, second, *_ = growing(64)
    assert_finds(GrowingResult, appends([second, first, first]))


@pytest.mark.parametrize(
    "pairs",
    [
        pytest.param([([640, 512], [64, 512])] * 4, id="a queue of one length"),
        pytest.param([([64, 512], [64, 512])] * 4, id="two halves"),
        pytest.param(growing(1), id="keys of a decoder, one row a token"),
        pytest.param([([1, 8, 500, 64], [1, 8, 1, 64])] * 4, id="a token that is added to one prompt"),
        pytest.param([([8, 3 + n, 64, 64], [8, 4, 64, 64]) for n in range(4)], id="channels of coordinates"),
        pytest.param([([8, n, 16, 16], [8, 32, 16, 16]) for n in (64, 96, 128, 160)], id="a dense block"),
        pytest.param([([n, 512], [64, 512]) for n in (100, 250, 333, 471)], id="inputs of several lengths"),
    ],
)
def test_silent_where_nothing_is_copied_again_and_again(pairs: Pairs) -> None:
    assert answer(GrowingResult, appends(pairs))[1] == []


def test_silent_where_a_backward_pass_needs_the_result() -> None:
    assert answer(GrowingResult, appends(growing(64), trains=True))[1] == []
