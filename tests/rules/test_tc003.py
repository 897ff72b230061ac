"""TC003 low-tensor-core-use: use shapes and layouts that let 16-bit matmuls run on Tensor Cores."""

from __future__ import annotations

import pytest
from support.findings import checked, places
from support.handmade import handmade, product_step


def test_fires_on_half_precision_on_ordinary_units() -> None:
    (finding,) = checked("TC003", handmade(product_step("volta_hgemm_128x64_nn")))
    assert finding.saving is None  # how much of it the memory limits is not known
    assert "model.py:7" in places(finding)


@pytest.mark.parametrize("kernel", ["turing_h1688gemm_128x128_nn", "ampere_hgemm_64x32_tn"])
def test_silent_where_tensor_cores_work_or_nobody_knows(kernel: str) -> None:
    assert checked("TC003", handmade(product_step(kernel))) == []


@pytest.mark.parametrize(
    ("kernel", "rows", "found"),
    [
        ("volta_hgemm_128x64_nn", 1, 0),  # decoding: reads the weights for one token
        ("volta_hgemm_128x64_nn", 8, 0),
        ("volta_hgemm_128x64_nn", 512, 1),
        ("void gemv2T_kernel_val<__half>", None, 0),  # made for a vector
        ("void gemv2T_kernel_val<__half>", 512, 1),  # the shape says more than the name
        ("maxwell_fp16_hgemm_128x64_nn", None, 1),
        ("void at::native::conv_depthwise2d_forward_kernel<7, 1, c10::Half, int>(...)", None, 0),
    ],
)
def test_leaves_memory_bound_products_alone(kernel: str, rows: int | None, found: int) -> None:
    assert len(checked("TC003", handmade(product_step(kernel, rows)))) == found


@pytest.mark.parametrize(
    ("kernel", "advises"),
    [
        ("naive_conv_ab_nonpacked_fwd_nchw_half_double_half.kd", True),
        ("miopenSp3AsmConv_v30_3_1_gfx9_fp16_dot2_edc_stride1_group.kd", False),
    ],
)
def test_naive_convolutions_have_an_advice_of_their_own(kernel: str, advises: bool) -> None:
    (finding,) = checked("TC003", handmade(product_step(kernel)))
    assert ("MIOPEN_FIND_MODE=1" in finding.fix.text) == advises
