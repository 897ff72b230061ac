"""Matmul operators of PyTorch and of engines: which they are, their sizes and the type that they multiply."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceopt.analyzer.vocabulary.gemm_ops import _FACTORS, gemm_shape, is_gemm, operand_type


@pytest.mark.parametrize(
    ("op", "dims", "shape"),
    [
        ("aten::mm", [[128, 5], [5, 64]], (128, 64, 5, 1)),
        ("aten::addmm", [[64], [4096, 100], [100, 64], [], []], (4096, 64, 100, 1)),
        ("aten::_addmm_activation", [[64], [4096, 100], [100, 64], [], [], []], (4096, 64, 100, 1)),
        ("aten::bmm", [[1024, 96, 50], [1024, 50, 8]], (96, 8, 50, 1024)),
        ("aten::baddbmm", [[1], [12, 77, 64], [12, 64, 77], [], []], (77, 77, 64, 12)),
        ("aten::addbmm", [[77, 77], [12, 77, 64], [12, 64, 77], [], []], (77, 77, 64, 12)),
        ("aten::_scaled_mm", [[256, 4096], [4096, 512], [], []], (256, 512, 4096, 1)),
        ("aten::mv", [[1000, 512], [512]], (1000, 1, 512, 1)),
        ("aten::addmv", [[1000], [1000, 512], [512]], (1000, 1, 512, 1)),
        ("aiter::gemm_a16w16", [[15360, 4096], [6144, 4096], [], []], (15360, 6144, 4096, 1)),
        ("vllm::rocm_unquantized_gemm", [[32, 2880], [201088, 2880], []], (32, 201088, 2880, 1)),
        # vLLM, SGLang, bitsandbytes and aiter: the result may come first, weights may be (N, K)
        ("_C::cutlass_scaled_mm", [[64, 512], [64, 128], [128, 512], [64, 1], [1, 512]], (64, 512, 128, 1)),
        ("sgl_kernel::fp8_scaled_mm", [[64, 128], [128, 512], [64, 1], [512, 1], [], []], (64, 512, 128, 1)),
        ("sgl_kernel::dsv3_router_gemm", [[4, 256], [4, 7168], [256, 7168]], (4, 256, 7168, 1)),
        ("bitsandbytes::int8_linear_matmul", [[32, 128], [512, 128]], (32, 512, 128, 1)),
        ("aiter::gemm_a8w8_blockscale_bpreshuffle", [[64, 128], [512, 128], [], []], (64, 512, 128, 1)),
        ("aiter::batched_gemm_a8w8", [[3, 64, 128], [3, 512, 128]], (64, 512, 128, 3)),
        ("aten::_scaled_mm_v2", [[256, 4096], [4096, 512], []], (256, 512, 4096, 1)),
        # two FP4 elements a byte
        ("_C::cutlass_scaled_fp4_mm", [[64, 512], [64, 64], [512, 64], [], []], (64, 512, 128, 1)),
        ("aiter::gemm_a4w4_asm", [[64, 64], [512, 64], [], []], (64, 512, 128, 1)),
        ("sgl_kernel::fp8_scaled_mm", [[64, 128], [512, 128]], None),
        ("aten::_scaled_grouped_mm_v2", [[128, 5], [2, 5, 64]], None),
        ("aten::linear", [[5, 128], [128, 128], [128]], None),  # calls addmm
        ("aten::matmul", [[128, 5], [5, 64]], None),
        ("mm", [[128, 5], [5, 64]], None),
        ("aten::mm", [], None),  # shapes not recorded
        ("aten::mm", None, None),
        ("aten::mm", [[], []], None),
        ("aten::mm", [[128, 5], [6, 64]], None),
        ("aten::mm", [[0, 5], [5, 64]], None),
        ("aten::mm", [[128.5, 5], [5, 64]], None),
        ("aten::bmm", [[2, 3, 4], [3, 4, 5]], None),
        ("aten::_grouped_mm", [[128, 5], [2, 5, 64]], None),
    ],
)
def test_gemm_shapes(op: str, dims: Any, shape: tuple[int, int, int, int] | None) -> None:
    assert gemm_shape(op, dims) == shape


@given(st.sampled_from(sorted(_FACTORS)), st.recursive(st.integers() | st.text() | st.none(), st.lists))
def test_gemm_shape_takes_any_dims(op: str, dims: Any) -> None:
    shape = gemm_shape(op, dims)
    assert shape is None or min(shape) > 0


@pytest.mark.parametrize(
    "op",
    [
        "aten::mm",
        "aten::_scaled_mm_v2",
        "aten::_scaled_grouped_mm_v2",
        "aten::_grouped_mm",
        "_C::cutlass_scaled_mm",
        "_C::gptq_marlin_gemm",
        "_C::marlin_gemm",
        "_C::machete_mm",
        "_C::awq_gemm",
        "_C::cutlass_moe_mm",
        "_C::cutlass_fp4_group_mm",
        "_moe_C::moe_wna16_marlin_gemm",
        "_rocm_C::wvSplitK",
        "_rocm_C::LLMM1",
        "sgl_kernel::fp8_blockwise_scaled_grouped_mm",
        "bitsandbytes::gemv_4bit",
        "aiter::hipb_mm",
        "aiter::fmoe_g1u1",
        "aiter::ck_moe_stage1",
        "aiter::deepgemm",
        "tex_ts::te_gemm_ts",
        "transformer_engine::generic_gemm",
    ],
)
def test_matmul_operators(op: str) -> None:
    assert is_gemm(op)


@pytest.mark.parametrize(
    "op",
    [
        "aten::linear",
        "aten::matmul",
        "aten::einsum",
        "aten::add",
        "vllm::moe_forward",
        "_C::silu_and_mul",
        "_C::rms_norm",
        "sgl_kernel::silu_and_mul",
        "sgl_kernel::moe_align_block_size",
        "aiter::rmsnorm2d_fwd",
        "flash_attn::_flash_attn_forward",
        "symm_mem::fused_all_gather_matmul",
        "aten::flex_attention",
        "mm",
    ],
)
def test_other_operators(op: str) -> None:
    assert not is_gemm(op)


def test_fp4_tensors_hold_two_elements_a_byte() -> None:
    packed = ["c10::Float4_e2m1fn_x2", "c10::Float4_e2m1fn_x2", "c10::Float8_e4m3fn", "c10::Float8_e4m3fn"]
    dims = [[256, 2048], [2048, 512], [256, 256], [512, 256]]
    assert gemm_shape("aten::_scaled_mm", dims, packed) == (256, 512, 4096, 1)
    assert gemm_shape("aten::_scaled_mm", dims, ["c10::Float8_e4m3fn"] * 4) == (256, 512, 2048, 1)


def test_a_call_of_autocast_is_no_product() -> None:
    dims = [[128, 5], [5, 64]]
    assert gemm_shape("aten::mm", dims, ["float", "c10::Half"]) is None
    assert gemm_shape("aten::mm", dims, ["c10::Half", "c10::Half"]) == (128, 64, 5, 1)
    assert gemm_shape("aten::_scaled_mm", dims, ["c10::Float8_e4m3fn", "c10::Float8_e5m2"]) == (128, 64, 5, 1)
    assert gemm_shape("aiter::gemm_a16w8", [[128, 5], [64, 5]], ["c10::BFloat16", "c10::Float8_e4m3fn"]) is not None


def test_the_type_is_that_of_the_left_factor_not_of_its_scales() -> None:
    types = ["c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "float", "float", "", "", "Scalar", "Scalar"]
    assert operand_type("aten::_scaled_mm", types) == "c10::Float8_e4m3fn"
    assert operand_type("aten::addmm", ["float", "c10::BFloat16", "c10::BFloat16"]) == "c10::BFloat16"
    assert operand_type("aten::mm", []) is None
    assert operand_type("aten::relu", types) is None
