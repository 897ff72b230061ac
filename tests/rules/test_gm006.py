"""GM006 small-linear-algebra: batch the linear algebra of small matrices."""

from __future__ import annotations

import pytest
from support.findings import found, saving_of
from support.planted import PlantedFault

from traceopt.analyzer.facts import Facts
from traceopt.testing import Machine
from traceopt.testing.events import op
from traceopt.testing.machine import A100


def run(
    name: str = "aten::linalg_inv",
    size: tuple[int, ...] = (16, 16),
    calls: int = 40,
    kernels: int = 3,
    between: str = "aten::select",
) -> Facts:
    """Each call launches kernels of 10 us, and waits for them."""
    machine = Machine(A100, with_stack=1, record_shapes=1)
    for _ in range(3):
        with machine.step():
            with machine.python("model.py(9): invert"):
                for _ in range(calls):
                    machine.work(5, between)
                    machine.idle(1)
                    start = machine.now
                    for _ in range(kernels):
                        machine.launch(10, name="getrf_kernel")
                    machine.synchronize(7)
                    machine.events.append(op(name, start, machine.now - start, **{"Input Dims": [list(size)]}))
                    machine.idle(1)
            machine.launch(2_000)
            machine.synchronize()
    return machine.facts()


class TestPlanted(PlantedFault):
    code = "GM006"


class TestSmallLinearAlgebra:
    def test_a_loop_over_matrices_is_priced(self) -> None:
        facts = run()
        (finding,) = found("GM006", facts)
        assert finding.title == "Batch the linear algebra of small matrices"
        assert "one by one, 40 times per step" in finding.why
        assert saving_of(finding).est_us == pytest.approx(0.44 * facts.step_ns / 1e3, rel=0.1)
        assert [str(place) for place in finding.locations] == ["model.py:9"]

    def test_a_loop_that_computes_in_between_may_depend_on_itself(self) -> None:
        (finding,) = found("GM006", run(between="aten::mm"))
        assert finding.saving is None

    @pytest.mark.parametrize(("size", "calls", "kernels"), [((16, 16), 40, 3), ((64, 16, 16), 1, 200)])
    def test_decompositions_may_be_faster_on_the_cpu(self, size: tuple[int, ...], calls: int, kernels: int) -> None:
        (finding,) = found("GM006", run("aten::linalg_eigh", size, calls, kernels))
        assert (finding.title, finding.saving) == ("Try small decompositions on the CPU", None)

    @pytest.mark.parametrize(
        "legitimate",
        [
            {"size": (2_048, 2_048)},
            {"size": (64, 16, 16), "calls": 1},
            {"calls": 3},
            {"name": "aten::linalg_eigh", "size": (64, 16, 16), "calls": 1},
        ],
    )
    def test_silent_on_large_few_and_batched_matrices(self, legitimate: dict[str, object]) -> None:
        assert found("GM006", run(**legitimate)) == []  # type: ignore[arg-type]
