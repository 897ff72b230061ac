"""EF019 sampling-backward: interpolate in FP32."""

from __future__ import annotations

import pytest
from support.findings import found

from traceopt.analyzer.facts import Facts
from traceopt.testing import Machine
from traceopt.testing.machine import A100

UPSAMPLING, SAMPLING = "aten::upsample_bilinear2d_backward", "aten::grid_sampler_2d_backward"


def backward(name: str, kind: str, values: list[str], kernel_us: float = 4_000) -> Facts:
    machine = Machine(A100, with_stack=1, record_shapes=1)
    for number in range(3):
        with machine.step(), machine.python("model.py(9): forward"):
            machine.launch(3_000)
            sizes = {"Input Dims": [[2, 3, 8, 8]], "Input type": [kind], "Concrete Inputs": values}
            start = machine.now
            machine.launch(kernel_us, name=f"{name}_kernel")
            ids = {"Sequence number": number, "Fwd thread id": 1}
            machine.now, end = start - 1, machine.now
            machine.work(end - start + 2, name, **sizes, **ids)
            machine.synchronize()
    return machine.facts()


class TestSamplingBackward:
    def test_fires_on_16_bits(self) -> None:
        (finding,) = found("EF019", backward(UPSAMPLING, "c10::Half", ["", "[16, 16]", "[2, 3, 8, 8]", "False"]))
        assert (finding.title, finding.saving) == ("Interpolate in FP32", None)
        assert "autocast" in (finding.fix.code or "")

    def test_names_the_gradient_of_the_picture(self) -> None:
        (finding,) = found("EF019", backward(SAMPLING, "float", ["", "", "", "0", "0", "False", "[True, True]"]))
        assert finding.title.startswith("Check whether grid_sample has to pass a gradient")

    @pytest.mark.parametrize(
        ("name", "values"),
        [
            (UPSAMPLING, ["", "[16, 16]", "[2, 3, 8, 8]", "False"]),
            (SAMPLING, ["", "", "", "0", "0", "False", "[False, True]"]),
        ],
    )
    def test_silent_in_fp32_without_that_gradient(self, name: str, values: list[str]) -> None:
        assert found("EF019", backward(name, "float", values)) == []

    def test_silent_where_it_takes_little(self) -> None:
        assert found("EF019", backward(UPSAMPLING, "c10::Half", [""], kernel_us=100)) == []
