"""AT001 unfused-attention: use fused attention (scaled_dot_product_attention)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.cpu_steps import Events, cpu_answer, silent, the
from support.planted import PlantedFault
from support.traces import GetExample

from traceopt.analyzer.replay.changes import RemoveHost
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.rules.catalogue.at001_unfused_attention import MATH_TITLE, UnfusedAttentionRule
from traceopt.testing import events as build


class TestPlanted(PlantedFault):
    code = "AT001"


def test_the_operators_of_the_matmuls_go_away_as_well(example: GetExample) -> None:
    """With autograd's nodes, where the host is the next limit."""
    facts = example("unfused_attention").facts
    (found,) = UnfusedAttentionRule().check(facts)
    (host,) = [change for change in found.changes if isinstance(change, RemoveHost)]
    assert 0.5 < host.share < 1
    for operator in ("aten::bmm", "autograd::engine::evaluate_function: BmmBackward0"):
        rows = np.flatnonzero(facts.regions.named(operator.__eq__, OP))
        assert len(rows)
        assert host.area.contains(facts.slices.start[rows]).any()


class TestAttention:
    """AT001."""

    def step(self, *names: str) -> Callable[[float, int], Events]:
        """Operators of a millisecond, one after the other."""

        def events(t: float, _: int) -> Events:
            yield build.python("model.py(8): attention", t + 1_000, 1_000 * len(names))
            for index, name in enumerate(names):
                yield build.op(name, t + 1_000 * (index + 1), 1_000)

        return events

    def test_product_softmax_product(self) -> None:
        step = self.step("aten::addmm", "aten::bmm", "aten::masked_fill", "aten::_softmax", "aten::bmm", "aten::mm")
        _, saved_us, places = the("AT001", step)
        assert saved_us == pytest.approx(0.9 * 2_000, rel=0.05)
        assert places == ["model.py:8"]

    def test_the_fused_operator_drops_no_weights(self) -> None:
        names = ("aten::bmm", "aten::_softmax", "aten::bernoulli_", "aten::mul", "aten::bmm", "aten::mm")
        assert silent("AT001", self.step(*names))

    @pytest.mark.parametrize(
        "names",
        [
            ("aten::bmm", "aten::_softmax", "aten::mul", "aten::bmm", "aten::mm"),  # weights with another sign
            ("aten::bmm", "aten::abs", "aten::_softmax", "aten::bmm", "aten::mm"),
            ("aten::bmm", "aten::mul", "aten::_softmax_backward_data", "aten::bmm", "aten::mm"),
        ],
    )
    def test_no_fused_operator_changes_scores_or_weights_otherwise(self, names: tuple[str, ...]) -> None:
        assert silent("AT001", self.step(*names))

    def test_in_training_the_fused_backward_repeats_a_product(self) -> None:
        def step(t: float, index: int) -> Events:
            yield from self.step("aten::bmm", "aten::masked_fill", "aten::_softmax", "aten::bmm", "aten::mm")(t, index)
            yield build.annotation("Optimizer.step#SGD.step", t + 8_000, 1_000)

        assert the("AT001", step)[1] == pytest.approx(0.9 * 2_000 - 2_000 / 6, rel=0.05)

    @pytest.mark.parametrize(
        "names",
        [
            ("aten::bmm", "aten::masked_fill", "aten::_softmax", "aten::mm", "aten::bmm"),
            ("aten::bmm", "aten::mm", "aten::mm", "aten::_softmax_backward_data", "aten::masked_fill", "aten::bmm"),
        ],
    )
    def test_the_projection_of_the_value_may_run_in_between(self, names: tuple[str, ...]) -> None:
        _, saved_us, _ = the("AT001", self.step(*names, "aten::mm"))
        assert saved_us == pytest.approx(0.9 * 2_000, rel=0.05)

    @pytest.mark.parametrize(
        "names",
        [
            ("aten::addmm", "aten::_softmax", "aten::bmm"),  # a gate
            ("aten::bmm", "aten::_softmax", "aten::mm", "aten::mm", "aten::bmm"),
            ("aten::bmm", "aten::_softmax_backward_data", "aten::mm", "aten::bmm"),
            ("aten::bmm", "aten::addmm", "aten::_softmax", "aten::bmm"),
            ("aten::_scaled_dot_product_flash_attention_for_cpu",),
        ],
    )
    def test_other_softmaxes(self, names: tuple[str, ...]) -> None:
        assert silent("AT001", self.step(*names))

    def test_the_long_way_of_the_fused_operator(self) -> None:
        def step(t: float, index: int) -> Events:
            yield build.op("aten::_scaled_dot_product_attention_math", t + 900, 4_000)
            yield from self.step("aten::bmm", "aten::_softmax", "aten::bmm")(t, index)

        assert silent("AT001", step)


class TestMathBackend:
    """AT001: scaled_dot_product_attention that a CPU runs as separate operators."""

    SDPA = "aten::scaled_dot_product_attention"

    def step(self, dropout: str = "0.1", sequence: int = 11) -> Callable[[float, int], Events]:
        """4 ms of attention forward and 3 ms backward, each with 2 ms of products. `sequence` is the number that the
        backward of the softmax says.
        """
        shape = [2, 4, 8, 16]
        inputs = {
            "Input Dims": [shape, shape, shape, [], [], []],
            "Input type": ["float", "float", "float", "", "Scalar", "Scalar"],
            "Concrete Inputs": ["", "", "", "", dropout, "False"],
        }

        def events(t: float, _: int) -> Events:
            yield build.op("aten::addmm", t + 100, 500)
            yield build.python("model.py(8): attention", t + 900, 4_100)
            yield build.op(self.SDPA, t + 900, 4_000, **inputs)
            yield build.op("aten::_scaled_dot_product_attention_math", t + 900, 4_000)
            yield build.op("aten::bmm", t + 900, 1_000, **{"Sequence number": 10})
            yield build.op("aten::_safe_softmax", t + 1_900, 1_000, **{"Sequence number": 11})
            yield build.op("aten::dropout", t + 2_900, 1_000, **{"Sequence number": 12})
            yield build.op("aten::bmm", t + 3_900, 1_000, **{"Sequence number": 13})
            backward = (("Bmm", 13, "aten::bmm"), ("Softmax", sequence, "aten::_softmax_backward_data"))
            for index, (node, number, name) in enumerate((*backward, ("Bmm", 10, "aten::bmm"))):
                began = t + 5_000 + 1_000 * index
                numbers = {"Sequence number": number, "Fwd thread id": 1}
                yield build.op(f"autograd::engine::evaluate_function: {node}Backward0", began, 1_000, **numbers)
                yield build.op(name, began, 1_000)
            yield build.annotation("Optimizer.step#SGD.step", t + 9_000, 500)

        return events

    def test_dropout_is_the_reason(self) -> None:
        finding, saved_us, places = the("AT001", self.step())
        assert saved_us == pytest.approx(0.9 * 3_000 - 4_000 / 6, rel=0.05)
        assert places == ["model.py:8"]
        assert "does not support dropout of the attention weights; this call has 0.1." in finding.fix.text
        assert finding.risk_words == "Trains without dropout of the attention weights"
        assert "takes 7.0 ms of each 10.0 ms step, 3.0 ms of it between the matmuls" in finding.why

    def test_its_backward_is_not_attention_of_the_script(self) -> None:
        assert [finding.title for finding in cpu_answer("AT001", self.step())[1]] == [MATH_TITLE]

    def test_the_backward_of_another_softmax_is(self) -> None:
        findings = {finding.title: finding for finding in cpu_answer("AT001", self.step(sequence=21))[1]}
        assert findings.keys() == {MATH_TITLE, UnfusedAttentionRule.title}
        assert "takes 4.0 ms of each" in findings[MATH_TITLE].why

    def test_without_a_reason_there_is_nothing_to_change(self) -> None:
        check, findings = cpu_answer("AT001", self.step(dropout="0."))
        assert not findings
        assert check.reason.endswith("70%. The trace does not show why.")

    def test_a_call_that_is_fused_passes(self) -> None:
        def step(t: float, _: int) -> Events:
            yield build.op(self.SDPA, t + 900, 4_000)
            yield build.op("aten::_scaled_dot_product_flash_attention_for_cpu", t + 900, 4_000)

        assert cpu_answer("AT001", step)[0].status == "passed"

    @pytest.mark.parametrize("odd", ["", "x", "[]"])
    def test_odd_inputs_are_no_dropout(self, odd: str) -> None:
        assert silent("AT001", self.step(dropout=odd))
