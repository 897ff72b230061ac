"""OP002 foreach-not-fused: pass fused=True to the optimizer."""

from __future__ import annotations

import pytest
from support.planted import PlantedFault

from traceopt.rules.catalogue.op002_foreach_not_fused import ForeachNotFused
from traceopt.testing import A100, Machine, answer, assert_finds

UPDATES = ("lerp_", "mul_", "addcmul_", "sqrt", "div_", "add_", "addcdiv_")
TABLE = [1_000_000, 64]
UPDATE_US, MODEL_US = 500.0, 4_000.0  # of a kernel; the GPU is busy all the time


class TestPlanted(PlantedFault):
    code = "OP002"


def gpu_bound(shapes: list[list[int]]) -> Machine:
    """Adam updates a large table in a kernel for each operation, and the GPU never waits."""
    machine = Machine(A100)
    for _ in range(4):
        with machine.step():
            machine.launch(MODEL_US)
            with machine.python("torch/optim/adam.py(213): step"), machine.annotate("Optimizer.step#Adam.step"):
                for name in UPDATES:
                    with machine.operator(f"aten::_foreach_{name}", **{"Input Dims": [shapes, []]}):
                        machine.launch(UPDATE_US)
            machine.synchronize()
    return machine


def test_kernels_of_large_tables_take_more_than_one_pass() -> None:
    finding = assert_finds(ForeachNotFused, gpu_bound([TABLE]))
    one_pass_us = 64e6 * 28 / (1_555e9 * 0.8) * 1e6  # 28 bytes of each value, at 80 % of the A100's bandwidth
    assert finding.saving is not None
    assert finding.saving.est_us == pytest.approx(len(UPDATES) * UPDATE_US - one_pass_us, rel=0.02)
    assert finding.saving.low_us == pytest.approx(len(UPDATES) * UPDATE_US - 2 * one_pass_us, rel=0.05)
    assert "3.5 ms of GPU time in each 7.5 ms step, where one pass over the parameters takes 1.4 ms" in finding.why


@pytest.mark.parametrize("shapes", [pytest.param([], id="left out"), pytest.param([[2_700_000, 64]], id="one pass")])
def test_silent_where_one_pass_would_take_as_long_or_sizes_are_unknown(shapes: list[list[int]]) -> None:
    assert answer(ForeachNotFused, gpu_bound(shapes))[1] == []
