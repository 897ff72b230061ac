"""Reductions of gradients by backward pass, and those that the last pass before the update repeats."""

from __future__ import annotations

import pytest
from support.facts import facts_of

from traceopt.analyzer.facts import Facts
from traceopt.testing.events import Json, annotation, kernel, op, read, runtime

NODE = "autograd::engine::evaluate_function: MmBackward0"


def micro_step(at: float, number: int, elements: int) -> list[Json]:
    """A forward product, then a backward pass that reduces this many floats for 50 us."""
    return [
        op("aten::mm", at, 5),
        op(NODE, at + 20, 60),
        runtime("cudaLaunchKernel", at + 30, 5, number),
        kernel(
            "ncclDevKernel_AllReduce_Sum_f32",
            at + 40,
            50,
            number,
            **{"Collective name": "allreduce", "In msg nelems": elements, "dtype": "Float", "Group size": 2},
        ),
    ]


def one_update(*elements: int) -> Facts:
    """A micro-step of 100 us for each size, then the optimizer."""
    passes = [event for i, size in enumerate(elements) for event in micro_step(100 * i, i + 1, size)]
    end = 100 * len(elements)
    return facts_of(passes, annotation("Optimizer.step#SGD.step", end, 20), step_us=end + 50)


@pytest.mark.parametrize(
    ("elements", "repeated"),
    [
        ((1000, 1000, 1000), [True, True, False]),
        ((100, 1000), [False, False]),  # another network's gradients
        ((900, 1000), [True, False]),
        ((1000,), [False]),
    ],
)
def test_reductions_before_the_last_pass(elements: tuple[int, ...], repeated: list[bool]) -> None:
    found = one_update(*elements).gradient_reductions
    assert found.backward_pass.tolist() == list(range(len(elements)))
    assert found.pass_bytes.tolist() == [4 * size for size in elements]
    assert found.exposed.tolist() == [50_000] * len(elements)
    assert found.repeated(0.8).tolist() == repeated
    assert found.passes_per_update == len(elements)


def test_without_collectives() -> None:
    found = Facts(read([annotation("ProfilerStep#0", 0, 100), op(NODE, 20, 60)])).gradient_reductions
    assert (len(found), found.repeated(0.8).tolist()) == (0, [])
