"""TC005 float64: use FP32 unless the model needs FP64."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.cpu_work import PEAKS, convolution, facts, finding, matmul, silent
from support.findings import found, saving_of
from support.planted import PlantedFault

from traceopt.analyzer.facts import Facts
from traceopt.testing import Machine
from traceopt.testing.events import Json, op, python
from traceopt.testing.machine import A100


class TestOnTheCpu:
    """At 200 GFLOP/s of 250."""

    def test_fires_within_the_measured_speedup(self) -> None:
        found = finding("TC005", facts(matmul(0, 9_999, "double")))
        assert found.saving is not None
        assert found.saving.est_us == pytest.approx(0.9 * 9_999 / 2, rel=0.01)
        assert found.saving.high_us == pytest.approx(9_999 * (1 - 0.8 / 2), rel=0.03)  # at the peak in FP32

    def test_convolutions_have_a_speedup_of_their_own(self) -> None:
        """FP64 convolutions do not run in oneDNN, so they gain more than matmuls."""
        rates = {"convolution_gflops_per_s": {"contiguous": 100.0}, "convolution_fp64_gflops_per_s": 25.0}
        both = facts(matmul(0, 4_000, "double", 700), convolution(5_000, 4_000, "double"), peaks=PEAKS | rates)
        found = finding("TC005", both)
        assert found.saving is not None
        assert found.saving.est_us == pytest.approx(0.9 * (4_000 / 2 + 4_000 * 3 / 4), rel=0.01)
        assert found.saving.basis.endswith("matmuls 2.0 times and convolutions 4.0 times.")

    def test_the_line_that_casts_to_fp64_comes_before_the_convolution(self) -> None:
        cast = op("aten::_to_copy", 20, 50, **{"Concrete Inputs": ["", "7", "", "", "", "False", ""]})
        narrow = op("aten::_to_copy", 80, 10, **{"Concrete Inputs": ["", "6", "", "", "", "False", ""]})
        frames = [python("train.py(7): load", 10, 90), python("model.py(31): forward", 100, 9_000)]
        found = finding("TC005", facts(cast, narrow, *frames, convolution(110, 8_900, "double")))
        assert [str(place) for place in found.locations] == ["train.py:7", "model.py:31"]
        assert [row.us_per_step for row in found.evidence] == [8_900, 50]

    def test_convolutions_without_a_measurement_promise_nothing(self) -> None:
        assert finding("TC005", facts(convolution(0, 9_000, "double"))).saving is None
        found = finding("TC005", facts(matmul(0, 4_000, "double", 700), convolution(5_000, 4_000, "double")))
        assert found.saving is not None
        assert found.saving.est_us == pytest.approx(0.9 * 4_000 / 2, rel=0.01)
        assert found.saving.basis.endswith("matmuls 2.0 times. The saving does not include convolutions.")

    def test_without_a_measurement_nothing_is_promised(self) -> None:
        assert finding("TC005", facts(matmul(100, 5_000, "double"), peaks=None)).saving is None

    def test_silent_on_fp32(self) -> None:
        assert silent("TC005", facts(matmul(100, 5_000)))


RTX = A100 | {"name": "NVIDIA GeForce RTX 3090", "computeMajor": 8, "computeMinor": 6}


@contextmanager
def wrapped(machine: Machine, name: str, sizes: dict[str, Any]) -> Iterator[None]:
    """An operator around what happens inside."""
    machine.idle(1)
    start = machine.now
    yield
    machine.idle(1)
    machine.events.append(op(name, start, machine.now - start, **sizes))
    machine.idle(1)


def products(device: Json, us: float = 9_000, kernel: str = "ampere_dgemm_64x64_tn", kind: str = "double") -> Facts:
    """A product a step, of data that is copied to the device."""
    sizes = {"Input Dims": [[4096, 2048], [2048, 2048]], "Input type": [kind, kind]}
    machine = Machine(device, with_stack=1, record_shapes=1)
    for _ in range(3):
        with machine.step():
            with machine.python("train.py(12): to_device"), wrapped(machine, "aten::copy_", sizes):
                machine.copy_to_host(50, "Pinned")
                machine.events[-1]["name"] = "Memcpy HtoD (Pinned -> Device)"
            with machine.python("model.py(9): forward"), wrapped(machine, "aten::mm", sizes):
                machine.launch(us, name=kernel)
            machine.launch(1_000, name="sgemm")
            machine.synchronize()
    return machine.facts()


class TestFloat64(PlantedFault):
    code = "TC005"


class TestOnAGpu:
    def test_fires_at_half_of_the_ratio_of_the_rates(self) -> None:
        (finding,) = found("TC005", products(RTX))
        assert "computes 64 times as fast in FP32" in finding.why
        assert saving_of(finding).est_us == pytest.approx(9_000 * (1 - 1 / 32), rel=0.01)
        assert [str(place) for place in finding.locations] == ["train.py:12", "model.py:9"]

    @pytest.mark.parametrize(
        ("functor", "share"),
        [("CUDAFunctor_add<double>", 0.5), ("sin_kernel_cuda(at::TensorIteratorBase&)::{lambda(double)#1}", 0.8)],
    )
    def test_other_kernels_save_what_they_do_not_compute(self, functor: str, share: float) -> None:
        kernel = f"void at::native::vectorized_elementwise_kernel<4, at::native::{functor} >(...)"
        (finding,) = found("TC005", products(RTX, kernel=kernel))
        assert saving_of(finding).est_us == pytest.approx(share * 9_000, rel=0.01)

    def test_silent_where_fp64_is_fast_rare_or_absent(self) -> None:
        assert found("TC005", products(A100)) == []
        assert found("TC005", products(RTX, us=50)) == []
        assert found("TC005", products(RTX, kernel="ampere_sgemm_128x64_tn", kind="float")) == []
