"""Kernel names that fit into a table."""

from __future__ import annotations

import pytest

from traceopt.result.words.kernel_names import short_kernel_name


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::elementwise<4, at::native::Add<float> >(int)", "elementwise<4, Add<float> >"),
        ("void at::native::(anonymous namespace)::layer_norm<float>(int, float const*)", "layer_norm<float>"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("sm80_xmma_gemm_f32", "sm80_xmma_gemm_f32"),
    ],
)
def test_short_kernel_names(name: str, short: str) -> None:
    assert short_kernel_name(name) == short
