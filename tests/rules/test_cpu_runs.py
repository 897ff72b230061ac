"""Rules on the model's work of a CPU-only run: what its operators reach, and what the CPU could do better."""

from __future__ import annotations

from typing import Any

import pytest

from traceopt.analyzer.facts import Facts
from traceopt.document.rank_document import rank_document
from traceopt.document.tables import tables
from traceopt.reports.html.page import render_html
from traceopt.result.document import Check
from traceopt.result.finding import Finding
from traceopt.rules.engine import run_rules
from traceopt.rules.registry import builtin_rules
from traceopt.testing import events as build

RULES = {rule.code: rule for rule in builtin_rules()}
STEP_US, STEPS = 10_000, 4
SIDE = 1_000  # a product takes 2 GFLOP
BF16 = {"model": "Example", "flags": ["avx2", "avx512_bf16"], "threads_per_core": 1}
AVX2 = {"model": "Example", "flags": ["avx2"], "threads_per_core": 1}
PEAKS = {"matmul_gflops_per_s": {"fp32": 500.0, "bf16": 2_000.0, "fp64": 250.0}, "copy_gb_per_s": 20.0}


def matmul(start: float, duration: float, dtype: str = "float", side: int = SIDE) -> build.Json:
    return build.op("aten::mm", start, duration, **{"Input Dims": [[side, side]] * 2, "Input type": [dtype] * 2})


def convolution(start: float, duration: float, dtype: str = "float") -> build.Json:
    sizes = {"Input Dims": [[8, 64, 28, 28], [64, 64, 3, 3], [], [], [], [], [], [], []], "Input type": [dtype] * 2}
    values = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    return build.op("aten::convolution", start, duration, **sizes, **{"Concrete Inputs": values})


def facts(
    *operators: build.Json, cpu: dict[str, Any] = BF16, peaks: dict[str, Any] | None = PEAKS, **own: Any
) -> Facts:
    """Four steps of these operators, whose times count from the start of a step."""
    environment = {"cpu": cpu, "threads": 4, "cpu_count": 4} | own.pop("environment", {})
    events = []
    for index in range(STEPS):
        start = index * STEP_US
        events.append(build.annotation(f"ProfilerStep#{index}", start, STEP_US))
        events += [{**one, "ts": one["ts"] + start} for one in operators]
    own = {"environment": environment, **({"cpu_peaks": peaks} if peaks else {}), **own}
    return Facts(build.read(build.document(events, traceopt=own)))


def answer(code: str, found: Facts) -> tuple[Check, list[Finding]]:
    outcome = run_rules([RULES[code]()], found, debug=True)
    return outcome.checks[0], outcome.findings


def finding(code: str, found: Facts) -> Finding:
    check, findings = answer(code, found)
    assert len(findings) == 1, check.reason
    return findings[0]


def silent(code: str, found: Facts) -> bool:
    check, findings = answer(code, found)
    return not findings and check.status in ("passed", "not_applicable")


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


class TestCores:
    """CP002."""

    ALL = PEAKS | {"all_threads": 16, "matmul_all_threads_gflops_per_s": 1_500.0}

    def test_one_thread_on_many_cores(self) -> None:
        found = finding("CP002", facts(matmul(100, 5_000), peaks=self.ALL, environment={"cpu_count": 16}))
        assert found.saving is not None
        assert found.saving.high_us == pytest.approx(5_000 * 2 / 3, rel=0.01)
        assert found.fix.code == "OMP_NUM_THREADS=16"

    def test_without_a_measurement_nothing_is_promised(self) -> None:
        assert finding("CP002", facts(matmul(100, 5_000), environment={"cpu_count": 16})).saving is None

    def test_a_thread_for_each_physical_core_is_enough(self) -> None:
        two_a_core = BF16 | {"threads_per_core": 2}
        assert silent("CP002", facts(matmul(100, 5_000), cpu=two_a_core, environment={"cpu_count": 8}))
        assert silent("CP002", facts(matmul(100, 5_000), cpu={}, environment={"cpu_count": 8}))

    def test_workers_need_cores_too(self) -> None:
        loaders = [{"num_workers": 9, "batches": 10}]
        assert silent("CP002", facts(matmul(100, 5_000), environment={"cpu_count": 16}, loaders=loaders))

    def test_ranks_share_the_cores(self) -> None:
        assert silent("CP002", facts(matmul(100, 5_000), environment={"cpu_count": 16, "local_world_size": 4}))

    def test_all_cores_that_are_no_faster(self) -> None:
        peaks = PEAKS | {"all_threads": 16, "matmul_all_threads_gflops_per_s": 510.0}
        assert silent("CP002", facts(matmul(100, 5_000), peaks=peaks, environment={"cpu_count": 16}))


class TestChannelsLast:
    """CP003."""

    MODELS = [{"class": "Net", "channels_last": False}]  # noqa: RUF012
    FASTER = PEAKS | {"convolution_gflops_per_s": {"contiguous": 100.0, "channels_last": 200.0}}

    def test_the_saving_may_be_none(self) -> None:
        found = finding("CP003", facts(convolution(100, 5_000), peaks=self.FASTER, models=self.MODELS))
        assert found.saving is not None
        assert (found.saving.low_us, found.saving.high_us) == (0.0, pytest.approx(2_500, rel=0.01))

    def test_a_cpu_on_which_it_is_no_faster(self) -> None:
        peaks = PEAKS | {"convolution_gflops_per_s": {"contiguous": 100.0, "channels_last": 101.0}}
        assert silent("CP003", facts(convolution(100, 5_000), peaks=peaks, models=self.MODELS))

    def test_without_a_measurement_it_is_not_checked(self) -> None:
        check, _ = answer("CP003", facts(convolution(100, 5_000), peaks=None, models=self.MODELS))
        assert check.status == "not_checked"

    def test_a_model_in_channels_last(self) -> None:
        models = [{"class": "Net", "channels_last": True}]
        assert silent("CP003", facts(convolution(100, 5_000), peaks=self.FASTER, models=models))


class TestOneDnn:
    """CP004."""

    def test_switched_off(self) -> None:
        off = BF16 | {"mkldnn": True, "mkldnn_enabled": False}
        assert finding("CP004", facts(convolution(100, 5_000), cpu=off)).saving is None
        assert silent("CP004", facts(matmul(100, 5_000), cpu=off))

    @pytest.mark.parametrize("state", [{"mkldnn": True, "mkldnn_enabled": True}, {"mkldnn": False}, {}])
    def test_switched_on_or_unknown(self, state: dict[str, bool]) -> None:
        assert silent("CP004", facts(convolution(100, 5_000), cpu=BF16 | state))


class TestFloat64:
    """CP005: at 200 GFLOP/s of 250."""

    def test_the_saving_is_within_the_measured_speedup(self) -> None:
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

    def test_fp32(self) -> None:
        assert silent("CP005", facts(matmul(100, 5_000)))


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


def page_faults(pages: int = 1_000, **environment: Any) -> Facts:
    """Steps of 10 ms, of which an operator takes 6; a page costs 2 us."""
    ledger = {
        "step_us": [10_000.0] * 20,
        "page_faults": [9_000] + [pages] * 12 + [0] * 7,
        "windows": [{"cycle": "timing", "warmup_from": 5, "from": 8, "until": 12}],
    }
    peaks = PEAKS | {"page_fault_us": 2.0}
    own = {"libc": "glibc"} | environment
    return facts(matmul(100, 6_000), peaks=peaks, environment=own, ledger=ledger, cycle={"name": "timing"})


class TestPageFaults:
    """CP006"""

    def test_the_saving_is_what_the_pages_cost(self) -> None:
        found = finding("CP006", page_faults())
        assert found.saving is not None
        assert (found.saving.low_us, found.confidence) == (0.0, "low")
        assert found.saving.est_us == pytest.approx(1_600, rel=0.01)
        assert found.saving.high_us == pytest.approx(2_000, rel=0.01)
        assert "1,000 new pages" in found.why

    def test_never_more_than_the_operators_take(self) -> None:
        found = finding("CP006", page_faults(100_000))
        assert found.saving is not None
        assert found.saving.est_us == pytest.approx(6_000, rel=0.01)

    @pytest.mark.parametrize(
        "environment",
        [
            {"libc": None},
            {"preloaded_allocator": "libtcmalloc.so.4"},
            {"variables": {"MALLOC_TRIM_THRESHOLD_": "1073741824"}},
        ],
    )
    def test_another_allocator(self, environment: dict[str, Any]) -> None:
        assert silent("CP006", page_faults(**environment))

    def test_few(self) -> None:
        assert silent("CP006", page_faults(100))

    def test_without_the_cost_of_a_page_nothing_is_said(self) -> None:
        check, findings = answer("CP006", facts(matmul(100, 6_000), environment={"libc": "glibc"}))
        assert (check.status, findings) == ("not_checked", [])
