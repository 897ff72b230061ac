"""Operators that launch a matmul, and where their two factors are among the recorded inputs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from traceopt.analyzer.vocabulary.op_names import profiler_dtype


class Factors(Struct, frozen=True):
    """Where an operator's factors are. The left one is (M, K), the right one (K, N) or, if `transposed`, (N, K)."""

    first: int = 0
    """Position of the left factor among the inputs; the right factor follows it."""
    transposed: bool = False
    packed: bool = False
    """The inputs hold two FP4 elements a byte: the recorded K is half of the true K."""
    rank: int = 2
    """Dimensions of a factor: 3 for batches of matrices, 1 for the right factor of a matrix-vector product."""


_FACTORS: dict[str, Factors] = {
    "aten::mm": Factors(),
    "aten::_int_mm": Factors(),
    "aten::_scaled_mm": Factors(),
    "aten::_scaled_mm_v2": Factors(),
    "aten::addmm": Factors(1),
    "aten::addmm_": Factors(1),
    "aten::_addmm_activation": Factors(1),
    "aten::bmm": Factors(rank=3),
    "aten::baddbmm": Factors(1, rank=3),
    "aten::baddbmm_": Factors(1, rank=3),
    "aten::addbmm": Factors(1, rank=3),
    "aten::addbmm_": Factors(1, rank=3),
    "aten::mv": Factors(rank=1),
    "aten::addmv": Factors(1, rank=1),
    "aten::addmv_": Factors(1, rank=1),
    # vLLM: torch_bindings.cpp; the first is in traces of MI300X
    "vllm::rocm_unquantized_gemm": Factors(transposed=True),
    "_C::cutlass_scaled_mm": Factors(1),
    "_C::cutlass_scaled_mm_azp": Factors(1),
    "_C::cutlass_scaled_fp4_mm": Factors(1, transposed=True, packed=True),
    # SGLang: common_extension.cc
    "sgl_kernel::fp8_scaled_mm": Factors(),
    "sgl_kernel::int8_scaled_mm": Factors(),
    "sgl_kernel::fp8_blockwise_scaled_mm": Factors(),
    "sgl_kernel::cutlass_scaled_fp4_mm": Factors(1, transposed=True, packed=True),
    "sgl_kernel::dsv3_fused_a_gemm": Factors(1),
    "sgl_kernel::dsv3_router_gemm": Factors(1, transposed=True),
    "bitsandbytes::int8_linear_matmul": Factors(transposed=True),
}
_AITER = re.compile(r"aiter::(?:flatmm_|(?P<batched>batched_))?gemm_a(?P<bits>\d{1,2})w\d{1,2}(?:_\w{1,60})?$")
# Products whose sizes follow from no pair of inputs: groups of rows, or weights in a packing of their own.
_OTHER = re.compile(
    r"aten::_(?:scaled_)?grouped_mm(?:_v2)?$|"
    # vLLM and SGLang: marlin_gemm, gptq_gemm, awq_gemm, machete_mm, cutlass_moe_mm, moe_wna16_marlin_gemm, wvSplitK;
    # bitsandbytes gemv_4bit; aiter hipb_mm and ck_moe_stage1; Transformer Engine's TorchScript operators
    r"(?:_C|_moe_C|_rocm_C|sgl_kernel|bitsandbytes|fbgemm|flashinfer|deep_gemm|transformer_engine|tex_ts)::"
    r"\w{0,60}(?:gemm|gemv|_mm|matmul|wvSplitK|LLMM1)(?:_\w{1,40})?$|"
    r"aiter::(?:\w{0,40}(?:gemm|_mm|wvSpl|LLMM1)|fmoe|ck_moe_stage\d)\w{0,60}$"
)


@lru_cache(maxsize=4096)
def factors_of(op: str) -> Factors | None:
    """Where the factors of an operator are; None if it is no matmul or its sizes are not in its inputs."""
    known = _FACTORS.get(op)
    if known is None and (match := _AITER.match(op)):
        return Factors(transposed=True, packed=match["bits"] == "4", rank=3 if match["batched"] else 2)
    return known


@lru_cache(maxsize=4096)
def is_gemm(op: str) -> bool:
    """Whether the operator launches a matmul itself; ``aten::linear``, ``matmul``, ``einsum`` call such operators."""
    return factors_of(op) is not None or _OTHER.match(op) is not None


def gemm_shape(
    op: str, dims: Sequence[Any] | None, types: Sequence[Any] | None = None
) -> tuple[int, int, int, int] | None:
    """``(M, N, K, batch)`` of a matmul from the profiler's "Input Dims" and "Input type".

    The product multiplies an M x K by a K x N matrix ``batch`` times (2 x M x N x K x batch FLOP). None if ``op`` is
    not a product of plain factors, or the dimensions are missing, empty or do not fit. None as well for a call of
    autocast, whose factors differ in type: it casts them and calls the operator again.
    """
    factors = factors_of(op)
    if factors is None or not isinstance(dims, (list, tuple)) or _is_autocast(op, factors, types):
        return None
    left = _shape(dims, factors.first, max(2, factors.rank))
    right = _shape(dims, factors.first + 1, factors.rank)
    if left is None or right is None or left[:-2] != right[:-2]:
        return None
    if factors.rank == 1:
        return (left[0], 1, left[1], 1) if left[1] == right[0] else None
    n, inner = right[-2:] if factors.transposed else right[:-3:-1]
    if left[-1] != inner:
        return None
    packed = factors.packed or _is_packed(types, factors.first)
    return left[-2], n, inner * (2 if packed else 1), left[0] if factors.rank == 3 else 1


def operand_type(op: str, types: Sequence[Any] | None) -> str | None:
    """The profiler's type of a matmul's left factor; None if it is unknown."""
    factors = factors_of(op)
    if factors is None or not isinstance(types, (list, tuple)) or factors.first >= len(types):
        return None
    return str(types[factors.first]) or None


def _is_autocast(op: str, factors: Factors, types: Sequence[Any] | None) -> bool:
    """Whether an operator of PyTorch was called with factors of two types."""
    if not op.startswith("aten::") or not isinstance(types, (list, tuple)):
        return False
    pair = [profiler_dtype(str(text)) for text in types[factors.first : factors.first + 2]]
    return len(pair) == 2 and None not in pair and pair[0] != pair[1]


def _is_packed(types: Sequence[Any] | None, position: int) -> bool:
    """Whether the input at a position is a tensor of ``torch.float4_e2m1fn_x2``."""
    return (
        isinstance(types, (list, tuple)) and position < len(types) and str(types[position]) == "c10::Float4_e2m1fn_x2"
    )


def _shape(dims: Sequence[Any], position: int, rank: int) -> tuple[int, ...] | None:
    if position >= len(dims):
        return None
    shape = dims[position]
    if not isinstance(shape, (list, tuple)) or len(shape) != rank:
        return None
    if not all(type(size) is int and size > 0 for size in shape):
        return None
    return tuple(shape)
