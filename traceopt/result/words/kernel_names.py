"""Names of kernels and matmuls as people read them."""

from __future__ import annotations

import re
from typing import Protocol

KERNEL_CAP = 60  # characters


def short_kernel_name(name: str) -> str:
    """A kernel's own name without return type, namespaces, template arguments and parameters.

    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, ...>(int, ...)" is
    "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, ...>" in KERNEL_CAP characters at most.
    """
    short = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    if "<" in short or "::" in short:
        short = short.partition("(")[0] or short
        short = re.sub(r"\b(?:\w+::)+", "", short)
    return short if len(short) <= KERNEL_CAP else short[: KERNEL_CAP - 1] + "…"


class MatmulShape(Protocol):
    """What names a matmul: D[m,n] = A[m,k] B[k,n], `batch` times."""

    @property
    def op(self) -> str: ...
    @property
    def m(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def dtype(self) -> str: ...


def gemm_name(gemm: MatmulShape) -> str:
    """A matmul by its operator, shape and type: "aten::bmm 16 x 5185x64x5185 bf16"."""
    batch = f"{gemm.batch} x " if gemm.batch > 1 else ""
    return f"{gemm.op} {batch}{gemm.m}x{gemm.n}x{gemm.k} {gemm.dtype}"
