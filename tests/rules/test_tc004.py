"""TC004 cast-churn: cast weights once, not in every step."""

from __future__ import annotations

import pytest
from support.planted import PlantedFault

from traceopt.rules.catalogue.tc004_cast_churn import CastChurn
from traceopt.testing import A100, Machine, answer
from traceopt.testing.events import op


class TestPlanted(PlantedFault):
    code = "TC004"


def cast(machine: Machine, size: list[int], to: str = "c10::Half", source: str = "float") -> None:
    """90 us of the host for 10 us of the GPU."""
    machine.idle(80)
    start = machine.now
    machine.launch(10, name="void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>")
    sizes = {"Input Dims": [size, size, []], "Input type": [to, source, "Scalar"]}
    machine.events.append(op("aten::copy_", start - 1, machine.now - start + 2, **sizes))


def test_casts_of_a_weight_and_its_bias_count_with_their_launches() -> None:
    machine = Machine(A100)
    cast(machine, [128, 512])  # before the steps
    machine.synchronize()
    for _ in range(5):
        with machine.step():
            cast(machine, [128, 512])
            cast(machine, [128])
            cast(machine, [77])  # of no weight
            start = machine.now
            machine.launch(300, name="ampere_fp16_s16816gemm_fp16_128x128")
            shapes = {"Input Dims": [[64, 512], [512, 128]], "Input type": ["c10::Half"] * 2}
            machine.events.append(op("aten::mm", start - 1, machine.now - start + 2, **shapes))
            machine.synchronize()
    _, [finding] = answer(CastChurn, machine)
    assert [row.what for row in finding.evidence] == ["fp32 to fp16: 128 x 512", "fp32 to fp16: 128"]
    assert [row.calls_per_step for row in finding.evidence] == [1, 1]
    assert finding.saving is not None
    assert finding.saving.est_us == pytest.approx(32, rel=0.1)  # more than the 20 us of the GPU


def test_casts_back_and_forth_are_not_called_casts_of_weights() -> None:
    machine = Machine(A100)
    for _ in range(5):
        with machine.step():
            for _ in range(4):
                cast(machine, [4, 1024, 4096], "float", "c10::Half")
                cast(machine, [4, 1024, 4096])
            machine.synchronize()
    _, [finding] = answer(CastChurn, machine)
    assert finding.title == "Keep tensors in one type instead of casting them back and forth"
    assert "weights" not in finding.why
    assert "autocast_adapter_dtype=False" in finding.fix.text
