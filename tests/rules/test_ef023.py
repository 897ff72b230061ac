"""EF023: the loss over a large vocabulary."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.autograd_steps import Event, accumulation, is_silent, node, operator, steps, the

from traceopt.analyzer.facts import Facts
from traceopt.result.experiments import Compared, Comparison, VocabularyLoss
from traceopt.rules.catalogue.ef023_large_logits import LargeLogitsRule
from traceopt.testing import events as build

TOKENS, WORDS, WIDTH = 512, 32_000, 64


def loss(words: int = WORDS, tokens: int = TOKENS) -> list[Event]:
    """The output layer takes 2 ms and the loss 3 ms, with its cast; their backward passes 4 and 4 ms."""
    logits = [tokens, words]
    return [
        build.python("model.py(9): forward", 0, 5_900),
        operator("aten::linear", 100, 2_000, [tokens, WIDTH], [words, WIDTH], number=5),
        operator("aten::to", 2_200, 1_000, logits, number=6),
        operator("aten::cross_entropy_loss", 3_300, 2_000, logits, [tokens], number=7),
        *node("LogSoftmaxBackward0", 6_000, 3_000, 7),
        *node("ToCopyBackward0", 9_100, 1_000, 6),
        *node("MmBackward0", 10_200, 4_000, 5),
        *accumulation(14_300, [words, WIDTH]),
    ]


def test_fires_on_the_loss_and_the_cast_without_the_matmul() -> None:
    found = the(LargeLogitsRule, steps(loss()))
    assert "logits of 512 x 32,000 numbers, 62.5 MiB" in found.why
    assert "Without the matmul, this takes 7.0 ms of each 20.0 ms step." in found.why
    assert found.saving is not None
    assert found.saving.low_us == 0  # chunks save memory, and little time on a CPU
    assert found.saving.est_us == pytest.approx(0.15 * 7_000, rel=0.05)
    assert [(one.file, one.line) for one in found.locations] == [("model.py", 9)]


def test_chunks_are_measured_with_the_matmul(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss takes 7 ms and the matmul 6 ms."""
    now = VocabularyLoss(TOKENS, WIDTH, WORDS, "fp32", TOKENS)
    comparison = Comparison(now, replace(now, chunk=64))
    saving = the(LargeLogitsRule, steps(loss())).saving
    assert saving is not None
    assert saving.experiments == (comparison,)
    monkeypatch.setattr(Facts, "compared", {comparison: Compared(comparison, 4e6, 2e6, 0.0)})
    saving = the(LargeLogitsRule, steps(loss())).saving
    assert saving is not None
    assert saving.est_us == pytest.approx(6_500, rel=0.02)


def test_silent_where_chunks_were_measured_to_be_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    now = VocabularyLoss(TOKENS, WIDTH, WORDS, "fp32", TOKENS)
    comparison = Comparison(now, replace(now, chunk=64))
    monkeypatch.setattr(Facts, "compared", {comparison: Compared(comparison, 4e6, 5e6, 0.0)})
    assert is_silent(LargeLogitsRule, steps(loss()))


@pytest.mark.parametrize(
    ("words", "tokens"),
    [pytest.param(1_000, TOKENS, id="few words"), pytest.param(WORDS, 64, id="few tokens: one chunk")],
)
def test_silent_on_small_logits(words: int, tokens: int) -> None:
    assert is_silent(LargeLogitsRule, steps(loss(words, tokens)))


def test_fires_on_a_gpu() -> None:
    found = the(LargeLogitsRule, steps(loss(), gpu=True))
    assert found.saving is not None
    assert found.saving.est_us == pytest.approx(2_800, rel=0.02)
