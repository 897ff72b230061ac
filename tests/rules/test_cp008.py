"""CP008 subnormal-numbers: flush subnormal numbers to zero."""

from __future__ import annotations

from typing import Any

import pytest
from support.cpu_work import PEAKS, SIDE, answer, facts, finding, matmul, silent

from traceopt.analyzer.facts import Facts
from traceopt.rules.savings.known_error import ERROR_ON_CPU
from traceopt.testing import events as build

SLOW_US = 8_000  # of a product that takes 4 ms at the peak
OF_WEIGHTS = {"kind": "parameter", "shape": [SIDE, SIDE], "share": 0.9, "slowdown": 5.0}


def subnormal(*operators: build.Json, flushed: bool = False, peaks: Any = PEAKS, **other: Any) -> Facts:
    return facts(*operators, subnormals={"flushed": flushed, "tensors": [OF_WEIGHTS | other]}, peaks=peaks)


def add(duration: float, *shapes: list[int]) -> build.Json:
    return build.op("aten::add_", 0, duration, **{"Input Dims": list(shapes), "Input type": ["float"] * len(shapes)})


class TestSubnormalNumbers:
    """A product of two matrices takes 4 ms at the peak, so no product becomes faster than that."""

    def test_fires_on_a_matmul_that_then_reaches_half_of_the_peak(self) -> None:
        found = finding("CP008", subnormal(matmul(0, 9_900), peaks=PEAKS | {"matmul_gflops_per_s": {"fp32": 2_000.0}}))
        saving = found.saving or pytest.fail("no saving")
        assert saving.low_us == pytest.approx(saving.est_us * (1 - ERROR_ON_CPU), rel=0.01)
        assert saving.est_us == pytest.approx(9_900 - 9_900 / 5, rel=0.01)  # half of the peak would take 2 ms
        assert saving.high_us == 9_500  # never all of the step
        assert "parameters (up to 90% of a tensor). Multiplying these numbers takes 5.0 times as long" in found.why
        assert found.fix.code == "torch.set_flush_denormal(True)"
        assert found.risk_note == "Values below 1.2e-38 become 0"

    def test_the_result_of_a_matmul_may_be_what_is_full_of_them(self) -> None:
        assert finding("CP008", subnormal(matmul(0, SLOW_US, side=SIDE), kind="gradient")).saving is not None

    def test_other_operators_become_as_fast_as_a_multiplication(self) -> None:
        found = finding("CP008", subnormal(add(SLOW_US, [SIDE, SIDE], [SIDE, SIDE])))
        saving = found.saving or pytest.fail("no saving")
        assert saving.est_us == pytest.approx(SLOW_US * (1 - 1 / 5), rel=0.01)

    def test_an_operator_on_many_tensors_is_slowed_by_some(self) -> None:
        found = finding("CP008", subnormal(add(SLOW_US, [SIDE, SIDE], [3 * SIDE, SIDE])))
        saving = found.saving or pytest.fail("no saving")
        assert saving.est_us == pytest.approx(SLOW_US * (1 - 1 / 2), rel=0.01)


class TestSilent:
    def test_silent_at_the_rate_of_this_cpu(self) -> None:
        """Such an operator is not slowed, whatever its tensors hold."""
        assert silent("CP008", subnormal(matmul(0, 4_100)))

    def test_tensors_of_another_shape(self) -> None:
        assert silent("CP008", subnormal(matmul(0, SLOW_US), shape=[SIDE, 2 * SIDE]))

    @pytest.mark.parametrize("slowdown", [1.0, 1.5])
    def test_a_cpu_that_is_almost_as_fast_with_them(self, slowdown: float) -> None:
        """A matmul below the peak has other reasons then."""
        assert silent("CP008", subnormal(matmul(0, 9_900), slowdown=slowdown))

    def test_an_operator_that_is_as_short_as_its_call(self) -> None:
        assert silent("CP008", subnormal(*(add(40, [SIDE, SIDE]) | {"ts": 50.0 * i} for i in range(100))))

    @pytest.mark.parametrize(
        ("recorded", "reason"),
        [
            ({}, "Nobody looked for subnormal numbers; traceopt run does."),
            ({"subnormals": {"flushed": True, "tensors": []}}, "The CPU flushes subnormal numbers to zero."),
            ({"subnormals": {"flushed": False, "tensors": []}}, "No tensor that was looked at has subnormal"),
        ],
    )
    def test_without_such_tensors(self, recorded: dict[str, Any], reason: str) -> None:
        check, findings = answer("CP008", facts(matmul(0, SLOW_US), **recorded))
        assert not findings
        assert (check.reason or "").startswith(reason)
