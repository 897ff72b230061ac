"""CV001 layout-conversion: use channels_last for convolutions."""

from __future__ import annotations

import pytest
from support.cpu_work import PEAKS, answer, convolution, facts, finding, silent
from support.planted import PlantedFault


class TestPlanted(PlantedFault):
    code = "CV001"


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
