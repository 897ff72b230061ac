"""CV004 cudnn-search: turn off cudnn.benchmark, or use few shapes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from support.findings import found, saving_of
from support.planted import PlantedFault

from traceopt.analyzer.facts import Facts
from traceopt.testing import Machine
from traceopt.testing.events import op
from traceopt.testing.machine import A100

FPROP = "sm80_xmma_fprop_implicit_gemm_f32f32"


class TestCudnnSearch(PlantedFault):
    code = "CV004"


def run(
    searches: Iterable[int], benchmark: bool | None = None, waits: bool = True, steps: int = 6, tries: int = 2
) -> Facts:
    """A convolution of 2 ms a step; in some steps two others run before it, twice each."""
    settings = {} if benchmark is None else {"traceopt": {"version": 1, "environment": {"cudnn_benchmark": benchmark}}}
    machine = Machine(A100, with_stack=1, **settings)
    for number in range(steps):
        with machine.step():
            with machine.python("model.py(9): forward"):
                machine.idle(1)
                start = machine.now
                for _ in range(tries if number in searches else 0):
                    machine.launch(1_000, name=f"{FPROP}_2")
                    machine.launch(1_000, name=f"{FPROP}_2")
                    if waits:
                        machine.call("cudaEventSynchronize", until=machine.ends[7])
                machine.launch(2_000, name=FPROP)
                machine.events.append(op("aten::convolution", start, machine.now - start))
                machine.idle(1)
            machine.launch(2_000)
            machine.synchronize()
    return machine.facts()


class TestSearch:
    def test_fires_where_each_step_searches(self) -> None:
        (finding,) = found("CV004", run(range(6), benchmark=True))
        assert finding.confidence == "high"
        assert saving_of(finding).est_us == pytest.approx(4_000 * 5 / 6, rel=0.1)
        assert [str(place) for place in finding.locations] == ["model.py:9"]
        assert "torch.backends.cudnn.benchmark = False" in (finding.fix.code or "")

    def test_without_the_setting_it_is_less_sure(self) -> None:
        (finding,) = found("CV004", run([2, 5], steps=9))
        assert finding.confidence == "medium"
        assert "in 2 of 9 steps" in finding.why

    @pytest.mark.parametrize("searches", [[], [0], [0, 3]])
    def test_silent_on_searches_at_the_start_or_once(self, searches: list[int]) -> None:
        assert found("CV004", run(searches)) == []

    def test_silent_with_benchmark_off_and_without_waits(self) -> None:
        assert found("CV004", run(range(6), benchmark=False)) == []
        assert found("CV004", run(range(6), waits=False)) == []
