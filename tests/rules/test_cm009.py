"""CM009 overlap-tax: leave more of the GPU to overlapped kernels."""

from __future__ import annotations

from support.findings import RULES, found, saving_of
from support.gpu_steps import NCCL, steps
from support.planted import PlantedFault
from support.traces import GetExample

from traceopt.testing.events import kernel, span


class TestPlanted(PlantedFault):
    code = "CM009"


class TestOverlapTax:
    def test_the_slowdown_is_that_of_the_time_beside(self, example: GetExample) -> None:
        (finding,) = found("CM009", example("overlap_tax").facts)
        assert "take 2.00 times as long" in finding.why
        assert saving_of(finding).low_us == 0

    def test_silent_on_the_twin_and_where_kernels_differ(self, example: GetExample) -> None:
        assert found("CM009", example("overlap_tax", fixed=True).facts) == []
        assert found("CM009", example("exposed_allreduce").facts) == []

    def test_products_of_unknown_size_are_not_compared(self) -> None:
        """The same name and grid, alone and beside a collective, but of another depth."""
        alone = [kernel("ampere_sgemm_128x64_tn", 100 + 200 * i, 100, i + 1, grid=[4, 4, 1]) for i in range(4)]
        beside = [kernel("ampere_sgemm_128x64_tn", 4_100 + 900 * i, 800, i + 9, grid=[4, 4, 1]) for i in range(4)]
        comm = kernel(NCCL, 4_000, 5_000, 30, stream=31)
        assert found("CM009", steps([*alone, *beside, comm])) == []
        copy = [span("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 20, 5, 7, device=0, stream=7, bytes=8)]
        assert RULES["CM009"].applies(steps(alone, copy)) == "No collectives in this trace."
