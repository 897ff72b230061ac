"""EF024 recomputed-prefix: keep the keys and values of earlier tokens."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from traceopt.rules.catalogue.ef024_recomputed_prefix import RecomputedPrefix
from traceopt.rules.savings.known_error import known_error, known_range
from traceopt.testing import A100, Machine, answer, assert_finds

PROMPT, TOKEN_US = 5, 20


def generation(tokens: Sequence[int], *, gpu: bool, trains: bool = False) -> Machine:
    """A step runs two layers a round, each on so many tokens, of 20 us a token."""
    machine = Machine(A100 if gpu else None)
    for _ in range(3):
        with machine.step(), machine.python("serve.py(7): generate"):
            for count in tokens:
                for _ in range(2):
                    shapes = [[1, count, 64], [64, 64]]
                    with machine.operator("aten::linear", **{"Input Dims": shapes, "Input type": ["float"] * 2}):
                        machine.launch(TOKEN_US * count) if gpu else machine.work(TOKEN_US * count, "aten::addmm")
            if trains:
                machine.work(10, "autograd::engine::evaluate_function: MmBackward0")
            if gpu:
                machine.synchronize()
    return machine


@pytest.mark.parametrize("gpu", [True, False])
def test_fires_on_inputs_that_grow_by_one_token(gpu: bool) -> None:
    """Of 20 rounds the last has no end. At least each could take what 5 tokens take, at most what one takes."""
    tokens = range(PROMPT, PROMPT + 20)
    finding = assert_finds(RecomputedPrefix, generation(tokens, gpu=gpu))
    assert "19 rounds per step compute all tokens so far again, 5 to 23 of them" in finding.why
    assert finding.saving is not None
    least = sum(2 * TOKEN_US * (count - PROMPT) for count in tokens[:-1])
    most = sum(2 * TOKEN_US * (count - 1) for count in tokens[:-1])
    low, high = known_range(least, finding.saving.est_us, most, known_error(gpu))
    assert finding.saving.low_us == pytest.approx(low, rel=0.05)
    assert finding.saving.high_us == pytest.approx(high, rel=0.05)


@pytest.mark.parametrize(
    ("tokens", "trains"),
    [
        pytest.param([1] * 20, False, id="one token a round"),
        pytest.param([32, 48, 64, 32, 16, 48] * 4, False, id="other batches"),
        pytest.param(range(5, 25), True, id="a training"),
    ],
)
def test_silent(tokens: Sequence[int], trains: bool) -> None:
    assert answer(RecomputedPrefix, generation(tokens, gpu=True, trains=trains))[1] == []
