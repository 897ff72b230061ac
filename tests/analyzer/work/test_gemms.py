"""Matrix products: sizes from "Input Dims", compute type, rates, share of peak, alignment."""

from __future__ import annotations

from typing import Any

import pytest
from support.facts import facts_of
from support.traces import GetExample

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.work.gemms import GemmShape
from traceopt.testing import A100
from traceopt.testing.events import Json, kernel, op, runtime

MI300X = {"name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4, "totalGlobalMem": 206_141_652_992}
V100 = {"name": "Tesla V100-SXM2-16GB", "computeMajor": 7, "computeMinor": 0, "totalGlobalMem": 16_945_512_448}
B200 = {"name": "NVIDIA B200", "computeMajor": 10, "computeMinor": 0, "totalGlobalMem": 191_510_298_624}
BF16 = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_tn"
KERNEL_US = 100


def call(name: str, dims: Any, dtype: str, kernel_name: str, at: float, correlation: int) -> list[Json]:
    """An operator that launches one kernel of 100 us."""
    types = [dtype if isinstance(size, list) and size else "Scalar" for size in dims] if isinstance(dims, list) else []
    return [
        op(name, at, 20, **{"Input Dims": dims, "Input type": types}),
        runtime("cudaLaunchKernel", at + 5, 5, correlation),
        kernel(kernel_name, at + 30, KERNEL_US, correlation),
    ]


def products(*calls: list[Json], **device: Any) -> Facts:
    return facts_of(*calls, step_us=100_000, deviceProperties=[A100 | device])


def only(facts: Facts) -> GemmShape:
    (shape,) = facts.gemms.shapes
    return shape


@pytest.mark.parametrize(
    ("name", "dims", "size"),
    [
        ("aten::mm", [[128, 256], [256, 512]], (128, 512, 256, 1)),
        ("aten::addmm", [[512], [128, 256], [256, 512], [], []], (128, 512, 256, 1)),
        ("aten::bmm", [[16, 128, 64], [16, 64, 256]], (128, 256, 64, 16)),
        ("aten::baddbmm", [[16, 128, 256], [16, 128, 64], [16, 64, 256], [], []], (128, 256, 64, 16)),
    ],
)
def test_sizes_and_rate(name: str, dims: list[list[int]], size: tuple[int, int, int, int]) -> None:
    facts = products(call(name, dims, "c10::BFloat16", BF16, 100, 1))
    shape = only(facts)
    m, n, k, batch = size
    assert (shape.m, shape.n, shape.k, shape.batch) == size
    assert (shape.dtype, shape.tensor_core, shape.calls) == ("bf16", True, 1)
    flops = 2 * m * n * k * batch
    assert shape.flops == flops
    assert shape.tflops == pytest.approx(flops / (KERNEL_US * 1e-6) / 1e12)
    assert shape.least_bytes(2) == 2 * batch * (m * k + k * n + m * n)
    assert facts.gemms.peak_share(shape) == pytest.approx(flops / (KERNEL_US * 1e-6) / 312e12)


def test_calls_of_one_shape_are_one_row() -> None:
    dims = [[128, 256], [256, 512]]
    facts = products(
        call("aten::mm", dims, "c10::BFloat16", BF16, 100, 1),
        call("aten::mm", dims, "c10::BFloat16", BF16, 300, 2),
        call("aten::mm", [[8, 8], [8, 8]], "c10::BFloat16", BF16, 500, 3),
    )
    assert [(s.m, s.calls, s.duration_ns) for s in facts.gemms.shapes] == [(128, 2, 200_000), (8, 1, 100_000)]
    assert facts.gemms.flops == 2 * 2 * 128 * 256 * 512 + 2 * 8**3


@pytest.mark.parametrize(
    ("kernel_name", "device", "dtype", "tensor_core"),
    [
        ("ampere_sgemm_128x64_tn", {}, "fp32", False),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_tensor16x8x8_kernel", {}, "tf32", True),
        ("Cijk_Ailk_Bljk_SB_MT128x128x16_MI32x32x2x1", MI300X, "fp32", True),
    ],
)
def test_fp32_on_tensor_cores_is_tf32(kernel_name: str, device: dict[str, Any], dtype: str, tensor_core: bool) -> None:
    """AMD's matrix cores support plain FP32."""
    dims = [[128, 256], [256, 512]]
    shape = only(products(call("aten::mm", dims, "float", kernel_name, 100, 1), **device))
    assert (shape.dtype, shape.tensor_core) == (dtype, tensor_core)


def test_tensor_core_use_may_be_unknown() -> None:
    shape = only(products(call("aten::mm", [[8, 8], [8, 8]], "c10::Half", "ampere_hgemm_64x32_tn", 100, 1)))
    assert shape.tensor_core is None


@pytest.mark.parametrize(
    ("m", "n", "k", "dtype", "aligned"),
    [
        (128, 50304, 1024, "c10::BFloat16", True),
        (128, 50257, 1024, "c10::BFloat16", False),
        (128, 1024, 50257, "c10::BFloat16", False),
        (127, 1024, 1024, "c10::BFloat16", True),  # M does not matter
        (128, 1028, 1024, "c10::BFloat16", False),
        (128, 1028, 1024, "float", True),  # 16 bytes are 4 elements
        (128, 1026, 1024, "float", False),
        (128, 1001, 1001, "double", None),
    ],
)
def test_alignment(m: int, n: int, k: int, dtype: str, aligned: bool | None) -> None:
    facts = products(call("aten::mm", [[m, k], [k, n]], dtype, "ampere_sgemm_128x64_tn", 100, 1))
    assert facts.gemms.aligned(only(facts)) is aligned


@pytest.mark.parametrize(("dtype", "aligned"), [("float", None), ("c10::BFloat16", None), ("c10::Half", False)])
def test_no_alignment_for_units_that_the_device_lacks(dtype: str, aligned: bool | None) -> None:
    facts = products(call("aten::mm", [[128, 1026], [1026, 1]], dtype, "volta_sgemm_128x64_tn", 100, 1), **V100)
    assert facts.gemms.aligned(only(facts)) is aligned


@pytest.mark.parametrize("dims", [[], [[128, 256]], [[128, 256], [255, 512]], [[0, 256], [256, 512]], "x", None])
def test_no_size_no_row(dims: Any) -> None:
    assert products(call("aten::mm", dims, "float", BF16, 100, 1)).gemms.shapes == []


def test_the_vocabulary_of_a_generated_trace(example: GetExample) -> None:
    """Its head multiplies 2 x 1024 tokens of 2048 features by 50257 columns, once forward and twice backward."""
    facts = example("misaligned_vocab").facts
    odd = {(s.m, s.n, s.k): s for s in facts.gemms.shapes if facts.gemms.aligned(s) is False}
    forward = odd[2048, 50257, 2048]
    assert forward.calls >= facts.steps.count - 1  # the host is a step ahead: the last one runs after the window
    assert forward.dtype == "bf16"
    assert all(50257 in size for size in odd)
    healthy = example("misaligned_vocab", fixed=True).facts
    assert [s for s in healthy.gemms.shapes if healthy.gemms.aligned(s) is False] == []


class TestNarrowTypes:
    """FP8 and FP4 products: their type, their peak, and that they use Tensor Cores."""

    def narrow(self, types: list[str], kernel_name: str, k: int) -> Facts:
        dims = [[2048, k], [k, 4096], [2048, 64], [4096, 64], [], []]
        events = call("aten::_scaled_mm", dims, "", kernel_name, 100, 1)
        events[0]["args"]["Input type"] = types
        return products(events, **B200)

    def test_fp8_is_the_type_of_the_factors_not_of_their_scales(self) -> None:
        types = ["c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "float", "float", "", "Scalar"]
        facts = self.narrow(types, "nvjet_sm100_qqtst_128x256_128x6_2x1_2cta_v_bz_TNT", 8192)
        shape = only(facts)
        assert (shape.dtype, shape.k, shape.tensor_core) == ("fp8", 8192, True)
        assert facts.gemms.peak_share(shape) == pytest.approx((shape.tflops or 0) / 4500)
        assert facts.gemms.aligned(shape) is True

    def test_fp4_holds_two_elements_a_byte_and_has_its_own_peak(self) -> None:
        types = ["c10::Float4_e2m1fn_x2", "c10::Float4_e2m1fn_x2", "c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "", ""]
        facts = self.narrow(types, "nvjet_sm100_ootst_128x256_256x5_2x1_2cta_v_bz_Avec16UE4M3_Bvec16UE4M3_TNT", 4096)
        shape = only(facts)
        assert (shape.dtype, shape.k, shape.tensor_core) == ("fp4", 8192, True)
        assert facts.gemms.peak_share(shape) == pytest.approx((shape.tflops or 0) / 9000)
        assert facts.flops.dtype == "fp4"
        assert facts.tensor_core_work.used_ns == facts.tensor_core_work.kernel_ns == KERNEL_US * 1000

    @pytest.mark.parametrize(
        ("kernel_name", "dtype"),
        [
            ("bmm_E2m1_E2m1E2m1_Fp32_Ab16_Bb16_Cb16_t128x8x512_s5_sm100f", "fp4"),
            ("bmm_Bfloat16_E4m3E4m3_Fp32_t128x8x128u2_s8_sm100f", "fp8"),
            ("bmm_Bfloat16_Bfloat16Bfloat16_Fp32_t128x8x128_s8_sm100f", "bf16"),
        ],
    )
    def test_the_name_decides_below_an_operator_that_quantizes_its_inputs(self, kernel_name: str, dtype: str) -> None:
        facts = products(call("vllm::moe_forward", [[64, 2048], [64, 8]], "c10::BFloat16", kernel_name, 100, 1), **B200)
        work = facts.tensor_core_work
        assert work.dtype.at(0) == dtype
        assert work.used_ns == KERNEL_US * 1000


class TestKnownShare:
    """How much of the time of matmul kernels has a shape."""

    def without_shapes(self, name: str, at: float, correlation: int) -> list[Json]:
        return call(name, "", "", BF16, at, correlation)

    def test_kernels_of_compiled_code_have_none(self) -> None:
        known = call("aten::mm", [[128, 256], [256, 512]], "c10::BFloat16", BF16, 100, 1)
        compiled = [self.without_shapes("Torch-Compiled Region: 0/0", 1_000 * n, n + 1) for n in (1, 2, 3)]
        assert products(known, *compiled).gemms.known_share == pytest.approx(0.25)

    def test_convolutions_have_a_table_of_their_own(self) -> None:
        known = call("aten::mm", [[128, 256], [256, 512]], "c10::BFloat16", BF16, 100, 1)
        assert products(known, self.without_shapes("aten::convolution", 1_000, 2)).gemms.known_share == 1
        assert products(self.without_shapes("aten::convolution", 1_000, 2)).gemms.known_share is None
        old = self.without_shapes("aten::cudnn_convolution_backward", 1_000, 2)  # in traces of 2021
        assert products(known, old).gemms.known_share == 1


@pytest.mark.parametrize(
    ("name", "device", "dtype"),
    [
        ("cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4", {}, "tf32"),
        ("volta_sgemm_128x64_nn", {}, "fp32"),
        ("Cijk_Ailk_Bljk_SB_MT64x64x16_MI32x32x2x1_SN", MI300X, "fp32"),  # matrix units that multiply FP32 as it is
        ("Cijk_Ailk_Bljk_S_MX_B_MT64x64x16_MI32x32x4x1_SN", MI300X, "tf32"),
    ],
)
def test_fp32_tensors_on_tensor_cores_are_tf32_wherever_work_is_named(
    name: str, device: dict[str, Any], dtype: str
) -> None:
    facts = products(call("aten::mm", [[128, 256], [256, 512]], "float", name, 100, 1), **device)
    assert facts.main_work is not None
    assert (only(facts).dtype, facts.main_work.dtype, facts.flops.dtype) == (dtype, dtype, dtype)
