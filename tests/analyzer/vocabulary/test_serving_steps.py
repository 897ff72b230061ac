"""Step annotations of SGLang and vLLM: phase, requests and tokens of each step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceopt.analyzer.vocabulary.phases.serving_steps import ServingStep, serving_step


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step[EXTEND bs=15 toks=15360]", ServingStep("SGLang", "prefill", 15, 15360, 0)),
        ("step[DECODE bs=8]", ServingStep("SGLang", "decode", 8, 0, 8)),
        ("step[DECODE bs=8 toks=8]", ServingStep("SGLang", "decode", 8, 0, 8)),
        ("step[DECODE bs=8 seq_sum=9000 forward_id=3]", ServingStep("SGLang", "decode", 8, 0, 8)),
        ("step[VERIFY bs=4 toks=16]", ServingStep("SGLang", "decode", 4, 0, 16)),
        ("step[VERIFY bs=4]", ServingStep("SGLang", "decode", 4, 0, None)),
        ("step[DRAFT bs=4]", ServingStep("SGLang", "decode", 4, 0, None, draft=True)),
        ("step[DRAFT_LOOP raw_bs=3 bs=4 topk=1]", ServingStep("SGLang", "decode", 4, 0, None, draft=True)),
        ("step[MIXED bs=9]", ServingStep("SGLang", "mixed", 9, None, None)),
        ("step[IDLE bs=0]", ServingStep("SGLang", "idle", 0, 0, 0)),
        ("execute_context_2(512)_generation_30(30)", ServingStep("vLLM", "mixed", 32, 512, 30)),
        ("execute_context_0(0)_generation_30(90)", ServingStep("vLLM", "decode", 30, 0, 90)),
        ("execute_context_2(512)_generation_0(0)", ServingStep("vLLM", "prefill", 2, 512, 0)),
        (
            "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk5120sqsq32sqsk5120)",
            ServingStep("vLLM", "decode", 32, 0, 32),
        ),
        (
            "execute_15360_context_15(sq15360sk15360sqsq15728640sqsk15728640)_generation_0(sq0sk0sqsq0sqsk0)",
            ServingStep("vLLM", "prefill", 15, 15360, 0),
        ),
        ("execute_context_0(0)_generation_0(0)", ServingStep("vLLM", "idle", 0, 0, 0)),
        ("execute_diffusion_1_256x256", None),
        ("execute_model", None),
        ("step", None),
        ("ProfilerStep#3", None),
        ("my step[EXTEND bs=1 toks=2]", None),
        ("", None),
    ],
)
def test_steps(name: str, step: ServingStep | None) -> None:
    assert serving_step(name) == step


def test_tokens_of_a_step() -> None:
    def tokens(name: str) -> int | None:
        step = serving_step(name)
        assert step is not None
        return step.tokens

    assert tokens("execute_context_2(512)_generation_30(30)") == 542
    assert tokens("step[EXTEND bs=15 toks=15360]") == 15360
    assert tokens("step[MIXED bs=9]") is None


@given(
    st.lists(st.sampled_from(["step[", "execute_", "context_", "generation_", "(sq", "9", ")", "bs=", " "])).map(
        "".join
    )
)
def test_any_name_is_read_or_not(name: str) -> None:
    step = serving_step(name)
    assert step is None or step.requests >= 0
