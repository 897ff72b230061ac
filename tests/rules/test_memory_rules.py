"""The rules about what memory holds: each fires on its planted trace and is silent on the healthy one."""

from __future__ import annotations

import pytest
from support.findings import found
from support.jobs import facts_with
from support.traces import GetExample

from traceopt.analyzer.memory.composition import ACTIVATIONS, OPTIMIZER_STATE, PARAMETERS
from traceopt.rules.fixes.advice.memory import remedies

CODES = ("MM001", "MM006")


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("scenario", ["healthy", "slow_loader", "cuda_malloc"])
def test_silent_without_their_fault(example: GetExample, code: str, scenario: str) -> None:
    assert found(code, example(scenario).facts) == []


class TestRemedies:
    def test_of_a_model_in_fp32(self) -> None:
        facts = facts_with(dtype="fp32", layers=2, hidden=1024, batch=8)
        held, state = facts.composition, facts.model_state
        assert held is not None
        assert state is not None
        given = {one.name: one.bytes for one in remedies(facts)}
        assert given["Mixed precision"] == held.of_the_batch // 2
        assert given["Gradient accumulation over two half batches"] == held.of_the_batch // 2
        assert 0 < (given["Activation checkpointing"] or 0) < held.of(ACTIVATIONS)
        assert given["An 8-bit optimizer"] == held.of(OPTIMIZER_STATE) - 2 * state.parameters
        assert given["ZeRO-1 over 2 GPUs"] == held.of(OPTIMIZER_STATE) // 2
        assert given["Optimizer state offloaded to the CPU"] == held.of(OPTIMIZER_STATE)
        qlora, lora = given["QLoRA with weights in 4 bits"], given["LoRA for fine-tuning"]
        assert (qlora or 0) - (lora or 0) == held.of(PARAMETERS) - state.parameters // 2

    def test_in_the_order_to_try_them(self, example: GetExample) -> None:
        names = [one.name for one in remedies(example("fp32_matmul").facts)]
        order = [
            "Mixed",
            "Activation",
            "Gradient",
            "An 8-bit",
            "LoRA",
            "QLoRA",
            "ZeRO-1",
            "ZeRO-2",
            "ZeRO-3",
            "Optimizer",
        ]
        assert [next(o for o in order if name.startswith(o)) for name in names] == order

    def test_what_is_done_already_is_left_out(self, example: GetExample) -> None:
        names = [one.name for one in remedies(example("checkpointing").facts)]
        assert "Mixed precision" not in names
        assert "Activation checkpointing" not in names

    def test_without_recorded_memory_nothing_is_priced(self) -> None:
        assert {one.bytes for one in remedies(facts_with(memory=False))} == {None}
