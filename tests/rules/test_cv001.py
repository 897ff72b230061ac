"""CV001 layout-conversion: use channels_last for convolutions."""

from __future__ import annotations

import pytest
from support.cpu_work import PEAKS, answer, convolution, facts, finding, silent
from support.findings import checked
from support.handmade import handmade, product_step
from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "CV001"


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        ("void at::native::conv_depthwise2d_backward_kernel<0, 1, c10::Half, int>(...)", 1),
        ("void dgrad2d_grouped_direct_kernel<__half, __half, __half, float, float, 0, 1, 7, 7>(...)", 0),
    ],
)
def test_depthwise_convolutions_by_pytorchs_own_kernels_are_in_nchw(kernel: str, found: int) -> None:
    findings = checked("CV001", handmade(product_step(kernel, None)))
    assert [(one.title, one.saving) for one in findings] == [
        ("Use channels_last for depthwise convolutions", None)
    ] * found


class TestOnCpu:
    """Convolutions of NCHW tensors."""

    MODELS = [{"class": "Net", "channels_last": False}]  # noqa: RUF012
    FASTER = PEAKS | {"convolution_gflops_per_s": {"contiguous": 100.0, "channels_last": 200.0}}

    def test_the_saving_may_be_none(self) -> None:
        found = finding("CV001", facts(convolution(100, 5_000), peaks=self.FASTER, models=self.MODELS))
        assert found.saving is not None
        assert (found.saving.low_us, found.saving.high_us) == (0.0, pytest.approx(2_500, rel=0.01))

    def test_a_cpu_on_which_it_is_no_faster(self) -> None:
        peaks = PEAKS | {"convolution_gflops_per_s": {"contiguous": 100.0, "channels_last": 101.0}}
        assert silent("CV001", facts(convolution(100, 5_000), peaks=peaks, models=self.MODELS))

    def test_without_a_measurement_it_is_not_checked(self) -> None:
        check, _ = answer("CV001", facts(convolution(100, 5_000), peaks=None, models=self.MODELS))
        assert check.status == "not_checked"

    def test_a_model_in_channels_last(self) -> None:
        models = [{"class": "Net", "channels_last": True}]
        assert silent("CV001", facts(convolution(100, 5_000), peaks=self.FASTER, models=models))
