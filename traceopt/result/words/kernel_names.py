"""Names of matmuls as people read them."""

from __future__ import annotations

from typing import Protocol


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
