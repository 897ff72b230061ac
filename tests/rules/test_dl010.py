"""DL010 padding-waste: pad batches only to their longest sample."""

from __future__ import annotations

from typing import Any

import pytest
from support.cpu_steps import STEP_US, Events, cpu_answer

from traceopt.result.document import Check
from traceopt.result.finding import Finding
from traceopt.testing import events as build

SAMPLES, SIZE, WIDTH, WORK_US = 8, 256, 128, 6_000
PADDED = {"size": SIZE, "samples": SAMPLES, "batches": 12, "longest": 64.0}


def answered(*shapes: list[int], name: str = "aten::mm", **padding: Any) -> tuple[Check, list[Finding]]:
    """Steps of 10 ms with one operator on tensors of these shapes."""

    def events(t: float, _: int) -> Events:
        yield build.op(name, t, WORK_US, **{"Input Dims": list(shapes), "Input type": ["float"] * len(shapes)})

    own = {"environment": {"threads": 1}, "padding": [PADDED | padding], "loaders": []}
    return cpu_answer("DL010", events, traceopt=own)


def saved_us(found: tuple[Check, list[Finding]]) -> float:
    [finding] = found[1] or pytest.fail(found[0].reason or "")
    assert finding.saving is not None
    return finding.saving.est_us


class TestPadding:
    """A quarter of the positions are used."""

    @pytest.mark.parametrize(
        ("shapes", "name", "left"),
        [
            ([[SAMPLES * SIZE, WIDTH], [WIDTH, WIDTH]], "aten::mm", 1 / 4),
            ([[WIDTH, SAMPLES * SIZE], [SAMPLES * SIZE, WIDTH]], "aten::mm", 1 / 4),  # of the weights' gradients
            ([[SAMPLES, SIZE, WIDTH]], "aten::gelu", 1 / 4),
            ([[SIZE, SAMPLES, WIDTH]], "aten::gelu", 1 / 4),
            ([[1000, WIDTH], [SAMPLES, SIZE]], "aten::embedding", 1 / 4),
            ([[SAMPLES, 4, SIZE, SIZE]], "aten::softmax", 1 / 16),
            ([[SAMPLES * 4, SIZE, 32], [SAMPLES * 4, 32, SIZE]], "aten::bmm", 1 / 16),
            ([[SAMPLES, 4, SIZE, 32]] * 3, "aten::_scaled_dot_product_flash_attention_for_cpu", 1 / 16),
        ],
    )
    def test_fires_on_work_on_positions(self, shapes: list[list[int]], name: str, left: float) -> None:
        assert saved_us(answered(*shapes, name=name)) == pytest.approx((1 - left) * WORK_US, rel=0.02)

    def test_the_function_that_joins_items_is_named_first(self) -> None:
        _, [found] = answered([SAMPLES, SIZE, WIDTH], name="aten::gelu", at="train.py(22): collate")
        assert str(found.locations[0]) == "train.py:22"
        assert "the longest sample has 64 on average, so 75% of the positions are for nothing" in found.why
        assert not found.fix.edits


class TestSilent:
    @pytest.mark.parametrize(
        "shapes",
        [
            [[SAMPLES, WIDTH], [WIDTH, WIDTH]],
            [[SAMPLES, SIZE], [SIZE, SIZE]],  # layers that are as wide as the samples are long
            [[SIZE, SIZE]],
        ],
    )
    def test_work_that_does_not_depend_on_the_length(self, shapes: list[list[int]]) -> None:
        assert not answered(*shapes)[1]

    def test_silent_on_little_padding(self) -> None:
        assert not answered([SAMPLES, SIZE, WIDTH], longest=220.0)[1]

    def test_a_single_batch_shows_nothing(self) -> None:
        check, findings = answered([SAMPLES, SIZE, WIDTH], batches=1)
        assert not findings
        assert check.reason == "No batches with padding were seen."

    @pytest.mark.parametrize("before", [[SAMPLES, SIZE, 4], [SAMPLES, 8, SIZE // 2]])
    def test_a_layer_that_needs_the_full_length(self, before: list[int]) -> None:
        def events(t: float, _: int) -> Events:
            kind = {"Input type": ["float", "float"]}
            yield build.op("aten::mul", t, WORK_US, **{"Input Dims": [before, []], **kind})
            flat = [[SAMPLES, SIZE * 4], [SIZE * 4, 10]]
            yield build.op("aten::mm", t + WORK_US, STEP_US - WORK_US - 100, **{"Input Dims": flat, **kind})

        check, findings = cpu_answer("DL010", events, traceopt={"environment": {"threads": 1}, "padding": [PADDED]})
        assert not findings
        assert check.reason == "A layer takes all positions of a sample as one vector."
