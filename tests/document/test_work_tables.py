"""Tables of work: rates of kernels against the peak, convolutions and attention by shape, modules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from support.traces import GENERATED, REAL, TWINS, AnalyzedTrace, GetExample, over

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.vocabulary.formulas.flop_formulas import argument_sizes
from traceopt.analyzer.work.gemms import MOST_OF_PEAK
from traceopt.api import analyze
from traceopt.document.sections import breakdown
from traceopt.document.tables import tables
from traceopt.document.tables.kernel_rates import Rate
from traceopt.document.tables.module_times import module_times
from traceopt.document.tables.shaped_operators import shaped_operators
from traceopt.reports.words.not_recorded import missing_gemms
from traceopt.result.document import Result
from traceopt.result.finding import Location
from traceopt.testing.events import op
from traceopt.testing.machine import Machine

H100 = {
    "id": 0,
    "name": "NVIDIA H100 80GB HBM3",
    "totalGlobalMem": 85_000_000_000,
    "computeMajor": 9,
    "computeMinor": 0,
}
H100_TRACES = Path(__file__).resolve().parents[2] / "fixtures" / "traces" / "h100"
GEMM = "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64"
HALF = ["c10::Half", "c10::Half"]
SQUARE = {"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": HALF}


def run(machine: Machine, name: str, us: float, kernel: str, **args: Any) -> None:
    """An operator that launches one kernel."""
    start = machine.now
    machine.idle(1)
    machine.launch(us, name=kernel)
    machine.idle(1)
    machine.events.append(op(name, start, machine.now - start, **args))


def facts_of_steps(work: Callable[[Machine], None]) -> Facts:
    machine = Machine(H100)
    for _ in range(3):
        with machine.step():
            work(machine)
            machine.synchronize()
    return machine.facts()


def test_rates_of_a_generated_training(example: GetExample) -> None:
    facts = example("healthy").facts
    kernels = tables.kernels(facts)
    matmuls = [kernel for kernel in kernels if kernel.op == "aten::mm"]
    rates = [gemm.tflops or 0 for gemm in tables.gemms(facts)]
    assert matmuls
    assert all(min(rates) <= (kernel.tflops or 0) <= max(rates) for kernel in matmuls)
    assert {kernel.limit for kernel in matmuls} == {"compute"}
    softmax = next(kernel for kernel in kernels if kernel.op == "aten::_log_softmax")
    assert softmax.limit == "memory"
    assert softmax.tflops is None
    assert softmax.peak_share == pytest.approx((softmax.gb_per_s or 0) / 1555, rel=1e-5)
    copy = next(kernel for kernel in kernels if kernel.name.startswith("Memcpy HtoD"))
    assert copy.gb_per_s is not None
    assert copy.peak_share is None  # the bus is its limit, not the memory
    optimizer = next(kernel for kernel in kernels if kernel.op == "aten::_fused_adamw_")
    assert (optimizer.tflops, optimizer.gb_per_s, optimizer.peak_share, optimizer.limit) == (None,) * 4


def test_the_peak_is_that_of_the_nearer_limit() -> None:
    thin = {"Input Dims": [[1, 4096], [4096, 4096]], "Input type": HALF}

    def work(machine: Machine) -> None:
        run(machine, "aten::mm", 200, GEMM, **SQUARE)
        run(machine, "aten::mm", 20, f"{GEMM}_thin", **thin)

    square, vector = tables.kernels(facts_of_steps(work))
    assert square.limit == "compute"
    assert square.tflops == pytest.approx(2 * 4096**3 / 200e-6 / 1e12)
    assert vector.limit == "memory"
    assert vector.gb_per_s == pytest.approx((4096 * 4096 + 2 * 4096) * 2 / 20e-6 / 1e9)


@pytest.mark.parametrize(("duration", "bound"), [(12, "memory"), (20, "neither"), (5, None)])
def test_a_kernel_is_bound_by_a_peak_that_it_nearly_reaches(duration: int, bound: str | None) -> None:
    """84% and 50% of the bandwidth; 200%: the data came from the cache."""
    thin = {"Input Dims": [[1, 4096], [4096, 4096]], "Input type": HALF}
    (kernel,) = tables.kernels(facts_of_steps(lambda machine: run(machine, "aten::mm", duration, GEMM, **thin)))
    assert kernel.bound == bound


def test_what_may_be_bound_by_bytes_that_are_not_known_has_no_bound() -> None:
    known = Rate(tflops=300.0, gb_per_s=None, peak_share=0.3, limit="compute")
    assert known.bound is None
    assert replace(known, peak_share=0.7).bound == "compute"


def test_attention_has_its_shape(example: GetExample) -> None:
    forward = next(row for row in shaped_operators(example("healthy").facts) if row.name.endswith("_flash_attention"))
    assert forward.sizes == "2x32x1024x64"
    assert forward.dtype == "bf16"
    assert forward.tensor_core is True
    assert 0.9 < (forward.peak_share or 0) < 1


@pytest.mark.parametrize(
    ("name", "dims", "concrete", "text"),
    [
        (
            "aten::convolution",
            [[32, 64, 56, 56], [128, 64, 3, 3], []],
            ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False"],
            "32x64x56x56, weight 128x64x3x3, stride 2",
        ),
        (
            "aten::convolution_backward",
            [[32, 128, 28, 28], [32, 64, 56, 56], [128, 64, 3, 3]],
            ["", "", "", "", "[2, 2]"],
            "32x64x56x56, weight 128x64x3x3, stride 2",
        ),
        ("aten::convolution", [[1, 3, 8, 8], [4, 3, 1, 1]], None, "1x3x8x8, weight 4x3x1x1"),
        (
            "aten::_scaled_dot_product_flash_attention",
            [[8, 12, 1, 64], [8, 12, 512, 64], [8, 12, 512, 64]],
            ["", "", "", "", "True"],
            "8x12x1x64, 512 keys, causal",
        ),
        ("aten::convolution", [["<img>"], []], None, ""),
        ("aten::convolution", None, None, ""),
    ],
)
def test_sizes_in_words(name: str, dims: object, concrete: object, text: str) -> None:
    assert argument_sizes(name, dims, concrete) == text


def test_modules_are_a_tree_with_the_time_of_their_callees() -> None:
    def work(machine: Machine) -> None:
        with machine.python("nn.Module: Net_0"):
            run(machine, "aten::embedding", 10, "embedding")
            for number in range(2):
                with machine.python(f"nn.Module: Block_{number}"):
                    machine.idle(1)
                    with machine.python("nn.Module: Linear_0"):
                        run(machine, "aten::mm", 100, GEMM, **SQUARE)
                    machine.idle(1)
        run(machine, "aten::add", 50, "elsewhere")

    times = module_times(facts_of_steps(work))
    assert times is not None
    rows = times.tree()
    assert [row.name for row in rows] == ["Net_0", "Block_0", "Linear_0", "Block_1", "Linear_0"]
    assert [row.parent for row in rows] == [-1, 0, 1, 0, 3]
    assert [row.forward_us_per_step for row in rows] == pytest.approx([210, 100, 100, 100, 100])
    assert [row.own_us_per_step for row in rows] == pytest.approx([10, 0, 100, 0, 100])
    assert {row.backward_us_per_step for row in rows} == {0}
    assert {row.calls_per_step for row in rows} == {1}
    assert all(row.host_us_per_step for row in rows)
    classes = [(row.name, row.modules, row.calls_per_step, row.forward_us_per_step) for row in times.classes()]
    assert classes == [("Linear", 1, 2, 200), ("Net", 1, 1, 10), ("Block", 2, 2, 0)]
    assert sum(row.share for row in times.classes()) == pytest.approx(1)


def test_modules_of_a_cpu_run_have_the_time_of_their_operators(example: GetExample) -> None:
    facts = example("cpu_only").facts
    whole = {part.name: part.us_per_step for part in breakdown(facts)}
    times = module_times(facts)
    assert times is not None
    model, *inner = times.tree()
    assert model.parent == -1
    assert 0.95 * whole["forward"] <= model.forward_us_per_step <= whole["forward"]
    assert 0.95 * whole["backward"] <= model.backward_us_per_step <= whole["backward"]
    own = sum(row.own_us_per_step for row in (model, *inner))
    assert own == pytest.approx(model.forward_us_per_step + model.backward_us_per_step, rel=1e-6)


def test_a_trace_without_modules_has_no_tree() -> None:
    assert module_times(facts_of_steps(lambda machine: run(machine, "aten::add", 50, "add"))) is None


def test_one_long_call_does_not_change_the_median_step_of_a_kernel() -> None:
    durations = iter([6.0, 181.0, 7.0])

    def work(machine: Machine) -> None:
        machine.launch(next(durations), name="sgemm", grid=[32, 2, 4], block=[128, 1, 1])
        machine.launch(10, name="gelu", grid=[8, 1, 1], block=[128, 1, 1])
        machine.launch(10, name="gelu", grid=[16, 1, 1], block=[128, 1, 1])
        machine.launch(1_000, name="add")  # so that no step is unusual

    rows = {kernel.name: kernel for kernel in tables.kernels(facts_of_steps(work))}
    assert rows["sgemm"].us_per_step == pytest.approx(194 / 3, abs=0.001)
    assert rows["sgemm"].median_us_per_step == 7.0
    assert rows["gelu"].median_us_per_step == 20.0
    assert [rows[name].blocks_per_call for name in ("sgemm", "gelu", "add")] == [256.0, 12.0, None]


def test_two_steps_have_no_median() -> None:
    machine = Machine(H100)
    for _ in range(2):
        with machine.step():
            machine.launch(6, name="sgemm")
            machine.synchronize()
    assert tables.kernels(machine.facts())[0].median_us_per_step is None


@pytest.mark.parametrize(("share", "known"), [(1.02, True), (1.04, False)])
def test_a_matmul_above_the_peak_has_no_shape(share: float, known: bool) -> None:
    us = 2 * 4096**3 / (share * 989.4e12) * 1e6
    facts = facts_of_steps(lambda machine: run(machine, "aten::mm", us, GEMM, **SQUARE))
    assert [gemm.peak_share for gemm in tables.gemms(facts)] == ([pytest.approx(share, rel=0.01)] if known else [])
    assert [kernel.tflops is not None for kernel in tables.kernels(facts)] == [known]
    assert (facts.flops.executed > 0) == known


def impossible(result: Result) -> list[object]:
    """Rates of matmuls above a verified peak."""
    peaks = {peak.figure: peak.verified for peak in (result.run.device.peaks if result.run.device else [])}
    kernels = [kernel for kernel in result.kernels if kernel.limit == "compute" and "conv" not in kernel.kind]
    rows = [row for row in result.gemms if peaks.get(row.dtype)]
    found = [row for row in (*kernels, *rows) if (row.peak_share or 0) > MOST_OF_PEAK]
    return [*found, *(share for share in (result.efficiency.mfu, result.efficiency.hfu) if (share or 0) > MOST_OF_PEAK)]


@over(GENERATED, TWINS, REAL)
def test_no_matmul_is_faster_than_the_device(trace: AnalyzedTrace) -> None:
    assert impossible(trace.result) == []


@pytest.mark.parametrize(("variant", "known_share"), [("plain", 0), ("fixed", 0.42)])
def test_shapes_of_longer_batches_give_no_rates(variant: str, known_share: float) -> None:
    """The detail cycle has the longest batch. With its shapes, shorter ones would reach 125 % of the peak."""
    result = analyze(str(H100_TRACES / "memory_pressure" / variant))
    assert result.gemm_known_share == pytest.approx(known_share, abs=0.02)
    assert max((gemm.peak_share or 0 for gemm in result.gemms), default=0) < 0.9
    assert result.efficiency.hfu is None
    assert result.gemms or "batches of another size" in missing_gemms(result)


@over(GENERATED, REAL)
def test_an_operator_has_the_line_with_most_of_its_gpu_time(trace: AnalyzedTrace) -> None:
    facts = trace.facts
    rows = np.flatnonzero(facts.gpu.is_inside & (facts.regions.op_of_work >= 0))
    lines: dict[str, Counter[Location]] = {}
    for row, site in zip(rows.tolist(), facts.sites_of_work(rows).tolist(), strict=True):
        if site >= 0:
            name = facts.trace.names[facts.regions.op_of_work[row]]
            lines.setdefault(name, Counter())[facts.call_sites.sites[site]] += int(facts.gpu.in_window[row])
    for one in trace.result.ops:
        if one.gpu_us_per_step and one.name in lines:
            assert one.location is not None
            assert lines[one.name][one.location] == max(lines[one.name].values())
            assert one.other_lines == len(lines[one.name]) - 1


def test_an_operator_without_gpu_time_has_the_line_with_most_of_its_cpu_time() -> None:
    machine = Machine(H100, with_stack=1)
    with machine.step():
        for line, us in ((3, 100), (3, 100), (5, 150)):  # the longest call is at the other line
            with machine.python(f"train.py({line}): work"):
                machine.work(us, "aten::nonzero")
        machine.launch(10)
        machine.synchronize()
    (one,) = [one for one in tables.ops(machine.facts()) if one.name == "aten::nonzero"]
    assert one.location is not None
    assert (one.location.line, one.other_lines) == (3, 1)
