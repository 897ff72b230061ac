"""What experts of GPU performance look up: how kernels were launched, and where shapes are in the roofline."""

from __future__ import annotations

import pytest

from traceopt.analyzer.vocabulary.formulas.byte_formulas import least_bytes
from traceopt.analyzer.vocabulary.formulas.flop_formulas import op_flops
from traceopt.document.tables import tables
from traceopt.document.tables.kernel_rates import RoofPoint, roof_point
from traceopt.testing.events import op
from traceopt.testing.machine import Machine

H100 = {
    "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000, "computeMajor": 9, "computeMinor": 0,
}  # fmt: skip
LAUNCH = {"registers per thread": 64, "shared memory": 3328, "grid": [32, 2, 1], "block": [128, 2, 1]}
HALF = ["c10::Half", "c10::Half"]


def test_a_kernel_has_its_launch_and_the_spread_of_its_calls() -> None:
    machine = Machine(H100)
    for us in (10.0, 30.0, 20.0):
        with machine.step():
            machine.launch(us, name="sgemm", **{"est. achieved occupancy %": 50}, **LAUNCH)
            machine.launch(2 * us, name="sgemm", **{"est. achieved occupancy %": 80}, **LAUNCH)
            machine.launch(1_000, name="add")
            machine.synchronize()
    rows = {kernel.name: kernel for kernel in tables.kernels(machine.facts())}
    found = rows["sgemm"]
    assert (found.blocks_per_call, found.threads_per_block, found.registers_per_thread) == (64, 256, 64)
    assert found.shared_bytes_per_block == 3328
    assert found.occupancy == pytest.approx(0.7)  # the longer call counts twice
    assert (found.shortest_us, found.median_us, found.longest_us) == (10, 25, 60)
    assert (found.least_us_per_step, found.most_us_per_step) == (30, 90)
    assert found.streams == "7"
    assert found.queued_us is not None
    assert rows["add"].queued_us > found.queued_us, "it waits for the others"
    assert rows["add"].registers_per_thread is None
    assert rows["add"].occupancy is None


def test_an_occupancy_of_0_is_not_known() -> None:
    """The profiler writes 0 where it cannot estimate, as for kernels with much shared memory."""
    machine = Machine(H100)
    with machine.step():
        machine.launch(30, name="sgemm", **{"est. achieved occupancy %": 0}, **LAUNCH)
        machine.launch(30, name="add", **{"est. achieved occupancy %": 0}, **LAUNCH)
        machine.launch(30, name="add", **{"est. achieved occupancy %": 50}, **LAUNCH)
        machine.synchronize()
    rows = {kernel.name: kernel for kernel in tables.kernels(machine.facts())}
    assert rows["sgemm"].occupancy is None
    assert rows["add"].occupancy == pytest.approx(0.25)  # a call with one block has less than 1 %


def test_a_matmul_with_few_rows_is_below_the_memory_roof() -> None:
    machine = Machine(H100)
    for _ in range(3):
        with machine.step():
            for m in (1, 4096):
                start = machine.now
                machine.idle(1)
                machine.launch(200, name="sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64")
                machine.idle(1)
                sizes = {"Input Dims": [[m, 4096], [4096, 4096]], "Input type": HALF}
                machine.events.append(op("aten::mm", start, machine.now - start, **sizes))
            machine.synchronize()
    by_rows = {gemm.m: gemm for gemm in tables.gemms(machine.facts())}
    thin, square = by_rows[1], by_rows[4096]
    assert (thin.roof, square.roof) == ("memory", "compute")
    assert thin.intensity == pytest.approx(1, rel=0.01)  # 2 FLOP for each weight of 2 bytes
    assert thin.gb_per_s == pytest.approx(2 * 4096 * 4096 / 200e-6 / 1e9, rel=0.01)
    assert thin.roof_share == pytest.approx(thin.gb_per_s / 3_352, rel=0.02)
    assert square.roof_share == square.peak_share


def test_without_peaks_or_bytes_the_place_in_the_roofline_is_not_known() -> None:
    known = roof_point(10.0, 1_000, 64_000, "bf16", None)
    assert (known.intensity, known.gb_per_s, known.roof) == (32, pytest.approx(312.5), None)
    for unknown in (
        roof_point(None, 1, 1, "bf16", None),
        roof_point(1.0, float("nan"), 1, "bf16", None),
        roof_point(1.0, 1, 1, None, None),
    ):
        assert unknown == RoofPoint()


@pytest.mark.parametrize(
    ("name", "dims", "concrete", "elements"),
    [
        ("aten::mm", [[4, 8], [8, 2]], [], 4 * 8 + 8 * 2 + 4 * 2),
        (
            "aten::convolution", [[2, 3, 8, 8], [4, 3, 3, 3]],
            ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"], 2 * 3 * 64 + 4 * 27 + 2 * 4 * 16,
        ),
        (
            "aten::convolution_backward", [[2, 4, 8, 8], [2, 3, 8, 8], [4, 3, 3, 3]],
            ["", "", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, False]"],
            2 * (2 * 4 * 64 + 2 * 3 * 64 + 4 * 27),
        ),
        ("aten::_scaled_dot_product_flash_attention", [[1, 2, 16, 8]] * 3, [], 4 * 2 * 16 * 8),
        ("aten::_scaled_dot_product_flash_attention_backward", [[1, 2, 16, 8]] * 4, [], 8 * 2 * 16 * 8),
    ],
)  # fmt: skip
def test_least_elements(name: str, dims: list[list[int]], concrete: list[str], elements: int) -> None:
    found = op_flops(name, dims, concrete)
    assert found is not None
    assert found.elements == elements


def test_the_backward_of_a_normalization_reads_two_tensors_and_writes_one() -> None:
    dims, types = [[32, 64, 7, 7], [32, 64, 7, 7], [64]], ["float"] * 3
    for name in ("aten::cudnn_batch_norm_backward", "aten::native_batch_norm_backward"):
        assert least_bytes(name, dims, types) == 3 * 4 * 32 * 64 * 49
