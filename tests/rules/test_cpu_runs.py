"""Rules on the model's work of a CPU-only run: what its operators reach, and what the CPU could do better."""

from __future__ import annotations

from typing import Any

import pytest
from support.cpu_work import PEAKS, answer, facts, finding, matmul, silent

from traceopt.document.rank_document import rank_document
from traceopt.document.tables import tables
from traceopt.reports.html.page import render_html
from traceopt.rules.engine import run_rules
from traceopt.testing import events as build

AVX2 = {"model": "Example", "flags": ["avx2"], "threads_per_core": 1}


class TestBfloat16:
    """CP001: 5 ms of each step at 400 GFLOP/s, which bfloat16 makes four times as fast."""

    def test_the_saving_is_within_the_measured_speedup(self) -> None:
        found = finding("CP001", facts(matmul(100, 5_000)))
        assert found.saving is not None
        assert found.saving.high_us == pytest.approx(0.75 * 5_000, rel=0.01)
        assert found.saving.low_us < found.saving.est_us < found.saving.high_us
        assert "4.0 times as fast" in found.why

    def test_casts_are_subtracted(self) -> None:
        """Two factors and a result of a million numbers each, 6 bytes a number, at 20 GB/s."""
        found = finding("CP001", facts(matmul(100, 5_000)))
        assert found.saving is not None
        assert found.saving.est_us == pytest.approx(0.75 * 0.75 * 5_000 - 900, rel=0.01)
        assert "less 0.90 ms for casts" in found.saving.basis

    def test_where_casts_may_take_the_gain_nothing_is_found(self) -> None:
        assert silent("CP001", facts(matmul(100, 5_000), peaks=PEAKS | {"copy_gb_per_s": 5.0}))

    def test_without_a_rate_of_copies_nothing_is_promised(self) -> None:
        found = finding("CP001", facts(matmul(100, 5_000), peaks=PEAKS | {"copy_gb_per_s": None}))
        assert found.saving is None

    def test_without_a_measurement_nothing_is_promised(self) -> None:
        found = finding("CP001", facts(matmul(100, 5_000), peaks=None))
        assert found.saving is None
        assert found.confidence == "low"

    @pytest.mark.parametrize("peaks", [PEAKS, None])
    def test_a_cpu_without_such_instructions(self, peaks: dict[str, Any] | None) -> None:
        assert silent("CP001", facts(matmul(100, 5_000), cpu=AVX2, peaks=peaks))

    @pytest.mark.parametrize("cpu", [None, {"flags": 7}, {"flags": [["avx512_bf16"]]}, {}])
    def test_a_cpu_that_was_not_recorded(self, cpu: Any) -> None:
        assert silent("CP001", facts(matmul(100, 5_000), cpu=cpu))

    def test_where_bfloat16_was_measured_not_to_be_faster(self) -> None:
        peaks = {"matmul_gflops_per_s": {"fp32": 500.0, "bf16": 550.0}}
        assert silent("CP001", facts(matmul(100, 5_000), peaks=peaks))

    def test_matmuls_in_bfloat16_already(self) -> None:
        assert silent("CP001", facts(matmul(100, 5_000, "c10::BFloat16")))

    def test_matmuls_far_from_the_peak_are_limited_by_something_else(self) -> None:
        assert silent("CP001", facts(matmul(100, 5_000, side=100)))

    def test_products_that_round_already(self) -> None:
        assert silent("CP001", facts(matmul(100, 5_000), environment={"matmul_precision": "medium"}))


class TestEfficiency:
    """EF004."""

    def test_other_operators_can_be_fused(self) -> None:
        found = finding("EF004", facts(matmul(0, 4_500), build.op("aten::gelu", 4_600, 5_000)))
        assert "gelu" in found.fix.text
        assert found.fix.code == "model = torch.compile(model)"
        assert "89% of the peak" in found.why

    def test_matmuls_below_the_peak_may_be_too_small(self) -> None:
        found = finding("EF004", facts(matmul(0, 9_900)))
        assert "larger batch" in found.fix.text

    def test_at_the_peak_nothing_is_left(self) -> None:
        check, findings = answer("EF004", facts(matmul(0, 4_500), matmul(4_600, 4_500)))
        assert not findings
        assert "89% of the peak" in check.reason


class TestReport:
    def test_operators_with_their_rates(self) -> None:
        found = tables.cpu(facts(matmul(0, 5_000), build.op("aten::gelu", 6_000, 1_000)))
        assert found is not None
        [row] = found.operators
        assert (row.name, row.dtype, row.calls_per_step) == ("aten::mm", "fp32", 1.0)
        assert row.gflops_per_s == pytest.approx(400)
        assert row.peak_share == pytest.approx(0.8)
        assert row.share == pytest.approx(0.5)

    def test_a_peak_that_the_run_exceeds_is_not_its_peak(self) -> None:
        found = tables.cpu(facts(matmul(0, 2_000)))
        assert found is not None
        assert found.operators[0].peak_share is None
        assert not found.rates

    def test_a_table_in_the_page_and_the_share_in_the_verdict(self) -> None:
        traced = facts(matmul(0, 9_900))
        document = rank_document(traced, run_rules([], traced))
        assert "at 40% of the measured peak" in document.verdict
        page = render_html(document, static=True)
        assert '<h2 id="gemms">Matmuls, convolutions and attention</h2>' in page
        assert "fp32 matmul" in page

    def test_without_shapes_there_is_none(self) -> None:
        assert tables.cpu(facts(build.op("aten::mm", 0, 5_000))) is None
