"""CP005 cpu-float64: use FP32 unless the model needs FP64."""

from __future__ import annotations

import pytest
from support.cpu_work import PEAKS, convolution, facts, finding, matmul, silent


class TestFloat64:
    """CP005: at 200 GFLOP/s of 250."""

    def test_fires_within_the_measured_speedup(self) -> None:
        found = finding("CP005", facts(matmul(0, 9_999, "double")))
        assert found.saving is not None
        assert found.saving.high_us == pytest.approx(9_999 / 2, rel=0.01)

    def test_convolutions_have_a_speedup_of_their_own(self) -> None:
        """FP64 convolutions do not run in oneDNN, so they gain more than matmuls."""
        rates = {"convolution_gflops_per_s": {"contiguous": 100.0}, "convolution_fp64_gflops_per_s": 25.0}
        both = facts(matmul(0, 4_000, "double", 700), convolution(5_000, 4_000, "double"), peaks=PEAKS | rates)
        found = finding("CP005", both)
        assert found.saving is not None
        assert found.saving.high_us == pytest.approx(4_000 / 2 + 4_000 * 3 / 4, rel=0.01)
        assert found.saving.basis.endswith("matmuls 2.0 times and convolutions 4.0 times.")

    def test_convolutions_without_a_measurement_promise_nothing(self) -> None:
        assert finding("CP005", facts(convolution(0, 9_000, "double"))).saving is None
        found = finding("CP005", facts(matmul(0, 4_000, "double", 700), convolution(5_000, 4_000, "double")))
        assert found.saving is not None
        assert found.saving.high_us == pytest.approx(4_000 / 2, rel=0.01)
        assert found.saving.basis.endswith("matmuls 2.0 times. The saving does not include convolutions.")

    def test_without_a_measurement_nothing_is_promised(self) -> None:
        assert finding("CP005", facts(matmul(100, 5_000, "double"), peaks=None)).saving is None

    def test_silent_on_fp32(self) -> None:
        assert silent("CP005", facts(matmul(100, 5_000)))
