"""What memory holds at its peak: blocks are paired by address and classified by when they come and go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.facts import facts_of
from support.traces import GetExample

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.memory.blocks import AFTER, BEFORE, find_blocks
from traceopt.analyzer.memory.composition import ACTIVATIONS, GRADIENTS, OPTIMIZER_STATE, OTHER, PARAMETERS, TEMPORARY
from traceopt.analyzer.memory.model_state import state_multiple
from traceopt.testing.events import Json, annotation, document, kernel, op, read, runtime

A100 = {"id": 0, "name": "NVIDIA A100-SXM4-40GB", "totalGlobalMem": 42_297_524_224}
NODE = "autograd::engine::evaluate_function: MmBackward0"
ACCUMULATE = "torch::autograd::AccumulateGrad"
STEP_US = 1_000.0
MB = 2**20


def mark(at: float, count: int, address: int, total: int) -> Json:
    args = {"Bytes": count, "Addr": address, "Total Allocated": total, "Total Reserved": total, "Device Type": 1}
    return {"ph": "i", "s": "t", "name": "[memory]", "pid": 100, "tid": 1, "ts": at, "args": {**args, "Device Id": 0}}


class Allocator:
    """Writes memory events with running totals; `resident` was there before."""

    def __init__(self, resident: int) -> None:
        self.total, self.marks = resident, []

    def __call__(self, at: float, count: int, address: int) -> None:
        self.total += count
        self.marks.append(mark(at, count, address, self.total))


def training(resident: int, steps: int = 3, *, keeps_gradients: bool = False) -> list[Json]:
    """Each step: an activation of 8 MB, a temporary of 1 MB in the forward, a gradient of 2 MB."""
    events: list[Json] = []
    memory = Allocator(resident)
    for index in range(steps):
        t = index * STEP_US
        events += [annotation(f"ProfilerStep#{index}", t, STEP_US)]
        events += [op("aten::linear", t + 100, 100), op("aten::mm", t + 110, 80)]
        events += [runtime("cudaLaunchKernel", t + 120, 5, 10 * index + 1)]
        events += [kernel("ampere_bf16_s16816gemm_bf16_128x64_tn", t + 130, 200, 10 * index + 1)]
        memory(t + 115, 8 * MB, 0x1000)
        memory(t + 120, 1 * MB, 0x2000)
        memory(t + 130, -1 * MB, 0x2000)
        shapes: dict[str, Any] = {"Input Dims": [[1024, 512]], "Input type": ["float"]}
        events += [op(NODE, t + 400, 50), op(f"{NODE[:36]} {ACCUMULATE}", t + 460, 20)]
        events += [op(ACCUMULATE, t + 461, 10, **shapes)]
        if index == 0 or not keeps_gradients:
            memory(t + 410, 2 * MB, 0x3000)
        memory(t + 440, -8 * MB, 0x1000)
        events += [annotation("Optimizer.step#AdamW.step", t + 600, 100)]
        events += [annotation("Optimizer.zero_grad#AdamW.zero_grad", t + 800, 20)]
        if not keeps_gradients:
            memory(t + 810, -2 * MB, 0x3000)
    return events + memory.marks


def facts_on_device(events: list[Json], **header: Any) -> Facts:
    return facts_of(events, steps=0, deviceProperties=[A100], **header)


class TestBlocks:
    def test_pairs_by_address(self) -> None:
        memory = Allocator(100)
        for at, count, address in [(1, 10, 1), (2, 20, 2), (3, -10, 1), (4, 30, 1), (5, -7, 9), (6, -30, 1)]:
            memory(at, count, address)
        trace = read(document([op("x", 0, 10), *memory.marks]))
        blocks = find_blocks(trace.memory, np.arange(len(trace.memory)))
        found = sorted(zip(blocks.bytes.tolist(), blocks.start.tolist(), blocks.end.tolist(), strict=True))
        assert found == [(7, BEFORE, 5_000), (10, 1_000, 3_000), (20, 2_000, AFTER), (30, 4_000, 6_000)]
        assert blocks.bytes[blocks.live(2_000)].tolist() == [10, 20, 7]

    def test_taken_twice_without_being_given_back(self) -> None:
        memory = Allocator(0)
        for at, count in [(1, 10), (2, 12), (3, -12)]:
            memory(at, count, 5)
        trace = read(document([op("x", 0, 10), *memory.marks]))
        blocks = find_blocks(trace.memory, np.arange(len(trace.memory)))
        assert sorted(blocks.end.tolist()) == [3_000, AFTER]


class TestComposition:
    def test_by_where_blocks_come_and_go(self) -> None:
        facts = facts_on_device(training(resident=10 * MB))
        held = facts.composition
        assert held is not None
        # the peak: activation and gradient; 10 MB stay, of which 2 MB are weights and 4 MB Adam's moments
        assert held.bytes == {
            PARAMETERS: 2 * MB,
            GRADIENTS: 2 * MB,
            OPTIMIZER_STATE: 4 * MB,
            ACTIVATIONS: 8 * MB,
            OTHER: 4 * MB,
        }
        assert held.total == facts.memory.peak_allocated if facts.memory else False

    def test_gradients_that_stay(self) -> None:
        held = facts_on_device(training(resident=10 * MB, keeps_gradients=True)).composition
        assert held is not None
        assert held.of(GRADIENTS) == 2 * MB
        assert held.of(OTHER) == 4 * MB

    def test_recorded_counts_win(self) -> None:
        own = {"models": [{"dtypes": {"bfloat16": MB}}], "optimizers": [{"parameters": MB}]}
        state = facts_on_device(training(resident=10 * MB), traceopt=own).model_state
        assert state is not None
        assert (state.source, state.parameters, state.parameter_bytes) == ("recorded", MB, 2 * MB)
        assert (state.gradient_bytes, state.state_bytes) == (2 * MB, 4 * MB)

    def test_a_sharded_model_is_not_split(self) -> None:
        held = facts_on_device(training(resident=1 * MB)).composition
        assert held is not None
        assert held.of(PARAMETERS) == 0
        assert held.of(OTHER) == 1 * MB

    @pytest.mark.parametrize(
        "junk", [{"models": 5}, {"models": [5, {"dtypes": 3}]}, "text", {"models": [{"dtypes": {"x": "y"}}]}]
    )
    def test_metadata_of_unexpected_types(self, junk: Any) -> None:
        state = facts_on_device(training(resident=10 * MB), traceopt=junk).model_state
        assert state is not None
        assert state.source == "shapes"

    def test_without_totals_or_on_a_cpu_there_is_none(self) -> None:
        assert facts_on_device([annotation("ProfilerStep#0", 0, 10)]).composition is None

    def test_sums_to_the_peak(self, example: GetExample) -> None:
        facts = example("healthy").facts
        assert facts.composition is not None
        assert facts.memory is not None
        assert facts.composition.total == facts.memory.peak_allocated
        assert facts.composition.of(ACTIVATIONS) > 0
        assert facts.composition.of(TEMPORARY) > 0


@pytest.mark.parametrize(
    ("name", "states"),
    [("AdamW", 2), ("torch.optim.adam.Adam", 2), ("SGD", 1), ("PagedAdamW8bit", 0.5), ("Mine", None), (None, None)],
)
def test_states_of_optimizers(name: str | None, states: float | None) -> None:
    assert state_multiple(name) == states


def test_passes_are_parted_by_forward_products() -> None:
    events: list[Json] = [annotation("ProfilerStep#0", 0, 1_000), kernel("k", 1, 2, 1)]
    for t in (0, 300, 600):
        events += [op("aten::mm", t + 10, 20), op(NODE, t + 100, 20), op("aten::mm", t + 105, 5), op(NODE, t + 130, 20)]
    passes = facts_on_device(events).regions.backward_passes
    assert list(zip(passes.start.tolist(), passes.end.tolist(), strict=True)) == [
        (100_000, 150_000),
        (400_000, 450_000),
        (700_000, 750_000),
    ]
