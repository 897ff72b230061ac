"""TC001 fp32-matmul: use mixed precision for matmuls and convolutions."""

from __future__ import annotations

from typing import Any

import pytest
from support.cpu_work import PEAKS, facts, finding, matmul, silent
from support.findings import found
from support.jobs import facts_with
from support.planted import PlantedFault

from traceopt.rules import Rule
from traceopt.rules.catalogue.tc001_fp32_matmul import Fp32Matmul
from traceopt.rules.catalogue.tc002_tf32_off import Tf32Off
from traceopt.testing import A100, Machine, answer
from traceopt.testing import events as build

AVX2 = {"model": "Example", "flags": ["avx2"], "threads_per_core": 1}


class TestPlanted(PlantedFault):
    code = "TC001"


@pytest.mark.parametrize(("idle_us", "promises"), [(0, True), (5_000, False)])
def test_launching_the_casts_of_autocast_may_take_the_gain(idle_us: float, promises: bool) -> None:
    """Two casts for each of eight matmuls, where the GPU waits for data."""
    machine = Machine(A100)
    for _ in range(5):
        with machine.step():
            machine.idle(idle_us)
            for _ in range(8):
                machine.work(150, "aten::mm")
                machine.launch(200, name="volta_sgemm_128x64_nn")
            with machine.annotate("Optimizer.step#SGD.step"):
                machine.synchronize()
    _, [finding] = answer(Fp32Matmul, machine)
    assert finding.saving is not None
    assert (finding.saving.low_us > 0) is promises


def test_the_casts_of_autocast_take_time_on_the_gpu() -> None:
    """Both factors have 4 million elements. They and their gradients are cast, 6 bytes each, at 80 % of 1,555 GB/s."""
    machine = Machine(A100)
    sizes = {"Input Dims": [[4096, 1024], [1024, 4096]], "Input type": ["float", "float"]}
    for _ in range(5):
        with machine.step():
            with machine.operator("aten::mm", **sizes):
                machine.launch(2_500, name="volta_sgemm_128x64_nn")
            with machine.annotate("Optimizer.step#SGD.step"):
                machine.synchronize()
    _, [finding] = answer(Fp32Matmul, machine)
    assert finding.saving is not None
    us = 2 * (2 * 4096 * 1024) * 6 / (0.8 * 1_555e3)
    assert f"Casts of autocast take {us / 1e3:.3f} ms" in str(finding.saving.basis)
    at_half_of_the_peak_us = 2 * 4096 * 4096 * 1024 / (0.5 * 312e6)
    assert finding.saving.est_us == pytest.approx(2_500 - at_half_of_the_peak_us - us, rel=0.01)


def with_a_decomposition(us: float) -> Machine:
    machine = Machine(A100)
    for _ in range(5):
        with machine.step():
            for _ in range(8):
                machine.work(50, "aten::mm")
                machine.launch(200, name="volta_sgemm_128x64_nn")
            with machine.operator("aten::linalg_svd", **{"Input Dims": [[16, 16], [], []]}):
                machine.launch(us, name="svd_kernel")
    return machine


def test_solvers_stay_in_fp32() -> None:
    """No patch wraps them in autocast: they have no kernels in 16 bits."""
    _, [finding] = answer(Fp32Matmul, with_a_decomposition(100))
    assert "Keep solvers and decompositions (torch.linalg) in FP32" in finding.fix.text
    assert finding.fix.edits == []


def convolutions(tf32_us: float, bf16_us: float) -> Machine:
    machine = Machine(A100)
    for _ in range(5):
        with machine.step():
            for us, name in (
                (tf32_us, "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw"),
                (bf16_us, BF16),
            ):
                for _ in range(8 if us else 0):
                    machine.work(20, "aten::conv2d")
                    machine.launch(us / 8, name=name)
            machine.synchronize()
    return machine


BF16 = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_nn"


def test_tf32_has_half_of_the_rate_of_16_bits() -> None:
    _, [finding] = answer(Fp32Matmul, convolutions(8_000, 0))
    assert finding.saving is not None
    assert "in TF32" in finding.why
    assert finding.saving.est_us == pytest.approx(8_000 * (1 - 1 / 1.6), rel=0.02)
    assert finding.saving.high_us <= 8_000 / 2 * 1.02


@pytest.mark.parametrize(("tf32_us", "named"), [(4_000, True), (500, False)])
def test_a_large_part_in_tf32_beside_work_in_16_bits_is_named(tf32_us: float, named: bool) -> None:
    check, findings = answer(Fp32Matmul, convolutions(tf32_us, 4_000))
    assert [found.title for found in findings] == ["Run all of the model in 16 bits"] * named
    assert ["overflow in float16" in found.fix.text for found in findings] == [True] * named
    assert named or "in mixed precision" in (check.reason or "")


@pytest.mark.parametrize("rule", [Fp32Matmul, Tf32Off])
def test_where_linear_algebra_takes_much_products_keep_their_precision(rule: type[Rule]) -> None:
    """Rounded products can make a matrix singular."""
    check, findings = answer(rule, with_a_decomposition(400))
    assert findings == []
    assert "they need precision" in (check.reason or "")


class TestOnCpu:
    """5 ms of each step at 400 GFLOP/s, which bfloat16 makes four times as fast."""

    def test_the_saving_is_within_the_measured_speedup(self) -> None:
        found = finding("TC001", facts(matmul(100, 5_000)))
        assert found.saving is not None
        assert found.saving.high_us == pytest.approx(0.75 * 5_000, rel=0.01)
        assert found.saving.low_us < found.saving.est_us < found.saving.high_us
        assert "4.0 times as fast" in found.why

    def test_casts_are_subtracted(self) -> None:
        """Two factors and a result of a million numbers each, 6 bytes a number, at 20 GB/s."""
        found = finding("TC001", facts(matmul(100, 5_000)))
        assert found.saving is not None
        assert found.saving.est_us == pytest.approx(0.75 * 0.75 * 5_000 - 900, rel=0.01)
        assert "less 0.90 ms for casts" in found.saving.basis

    def test_where_casts_may_take_the_gain_nothing_is_found(self) -> None:
        assert silent("TC001", facts(matmul(100, 5_000), peaks=PEAKS | {"copy_gb_per_s": 5.0}))

    def test_attention_may_take_the_gain(self) -> None:
        """Its kernel may be slower in bfloat16, so that autocast alone is no patch."""
        sizes = {"Input Dims": [[8, 6, 128, 32]] * 3, "Input type": ["float"] * 3}
        attention = build.op("aten::_scaled_dot_product_flash_attention_for_cpu", 6_000, 2_000, **sizes)
        found = finding("TC001", facts(matmul(100, 5_000), attention))
        assert found.saving is not None
        assert found.saving.low_us == 0
        assert found.saving.high_us == pytest.approx(0.75 * 5_000, rel=0.01)  # of the matmul alone
        assert "Keep attention in FP32" in found.fix.text
        assert found.fix.edits == []

    def test_without_a_rate_of_copies_nothing_is_promised(self) -> None:
        found = finding("TC001", facts(matmul(100, 5_000), peaks=PEAKS | {"copy_gb_per_s": None}))
        assert found.saving is None

    def test_without_a_measurement_nothing_is_promised(self) -> None:
        found = finding("TC001", facts(matmul(100, 5_000), peaks=None))
        assert found.saving is None
        assert found.confidence == "low"

    @pytest.mark.parametrize("peaks", [PEAKS, None])
    def test_a_cpu_without_such_instructions(self, peaks: dict[str, Any] | None) -> None:
        assert silent("TC001", facts(matmul(100, 5_000), cpu=AVX2, peaks=peaks))

    @pytest.mark.parametrize("cpu", [None, {"flags": 7}, {"flags": [["avx512_bf16"]]}, {}])
    def test_a_cpu_that_was_not_recorded(self, cpu: Any) -> None:
        assert silent("TC001", facts(matmul(100, 5_000), cpu=cpu))

    def test_where_bfloat16_was_measured_not_to_be_faster(self) -> None:
        peaks = {"matmul_gflops_per_s": {"fp32": 500.0, "bf16": 550.0}}
        assert silent("TC001", facts(matmul(100, 5_000), peaks=peaks))

    def test_matmuls_in_bfloat16_already(self) -> None:
        assert silent("TC001", facts(matmul(100, 5_000, "c10::BFloat16")))

    def test_matmuls_far_from_the_peak_are_limited_by_something_else(self) -> None:
        assert silent("TC001", facts(matmul(100, 5_000, side=100)))

    def test_matmuls_of_a_data_set_are_not_the_models(self) -> None:
        """Such as a mel filter bank: autocast around the forward pass does not change them."""
        batch = build.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 5_000)
        assert silent("TC001", facts(batch, matmul(100, 4_800), build.op("aten::gelu", 5_100, 4_000)))

    def test_products_that_round_already(self) -> None:
        assert silent("TC001", facts(matmul(100, 5_000), environment={"matmul_precision": "medium"}))


def test_fused_attention_is_no_mixed_precision() -> None:
    """In FP32 it uses Tensor Cores, too."""
    facts = facts_with("fp32_matmul", tokens=4096, batch=1)
    work = facts.tensor_core_work
    assert work.used_ns > 0.1 * work.eligible_ns
    (finding,) = found("TC001", facts)
    assert "in FP32, without the Tensor Cores of the NVIDIA A100-SXM4-40GB." in finding.why
