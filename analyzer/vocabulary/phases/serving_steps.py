"""Annotations with which serving engines mark their steps: one forward pass over a batch of requests. And their frames.

The names differ from step to step, because they hold the batch. Seen in traces of TraceLens (SGLang and vLLM on MI300X)
and in the engines' sources of 2026.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, get_args

from msgspec import Struct

Phase = Literal["prefill", "decode", "mixed", "idle"]
PHASES: tuple[Phase, ...] = get_args(Phase)
Engine = Literal["SGLang", "vLLM", "TensorRT-LLM", "TGI"]


class ServingStep(Struct, frozen=True):
    """The batch of one step. A token count is None where the annotation does not say it."""

    engine: Engine
    phase: Phase
    requests: int
    prefill_tokens: int | None
    decode_tokens: int | None
    draft: bool = False
    """A pass of the draft model in speculative decoding: part of a step, not a step."""

    @property
    def tokens(self) -> int | None:
        """Tokens that the step computes."""
        if self.prefill_tokens is None or self.decode_tokens is None:
            return None
        return self.prefill_tokens + self.decode_tokens


# step[EXTEND bs=15 toks=15360], step[DECODE bs=8], step[VERIFY bs=8 ...]; older versions give tokens for every mode.
_SGLANG = re.compile(
    r"step\[(?P<mode>[A-Z_]{1,40}) (?:raw_bs=\d{1,9} )?bs=(?P<requests>\d{1,9})(?: toks=(?P<tokens>\d{1,12}))?"
)
_SGLANG_PHASES: dict[str, Phase] = {
    "EXTEND": "prefill",
    "SPLIT_PREFILL": "prefill",
    "DLLM_EXTEND": "prefill",
    "MIXED": "mixed",
    "IDLE": "idle",
    "PREBUILT": "idle",
}
# execute_context_2(512)_generation_30(30), and with sums of lengths
# execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk5120sqsq32sqsk5120): "sq" is the number of tokens.
_VLLM = re.compile(
    r"execute_(?:\d{1,12}_)?context_(?P<prefills>\d{1,9})\((?:sq)?(?P<prefill_tokens>\d{1,12})[^()]{0,200}\)"
    r"_generation_(?P<decodes>\d{1,9})\((?:sq)?(?P<decode_tokens>\d{1,12})[^()]{0,200}\)"
)

# Python frames of the loops that run the model; kernels and layers of these packages are used elsewhere too.
_ENGINE_FRAMES: dict[Engine, re.Pattern[str]] = {
    "SGLang": re.compile(r"(?:^|/)sglang/srt/(?:managers|model_executor|entrypoints)/"),
    "vLLM": re.compile(r"(?:^|/)vllm/(?:v1/)?(?:worker|engine|executor|entrypoints)/"),
    "TensorRT-LLM": re.compile(r"(?:^|/)tensorrt_llm/_torch/pyexecutor/"),
    "TGI": re.compile(r"(?:^|/)text_generation_server/"),
}


def engine_of_frame(name: str) -> Engine | None:
    """The serving engine whose loop a Python frame belongs to; None for any other frame."""
    return next((engine for engine, pattern in _ENGINE_FRAMES.items() if pattern.search(name)), None)


@lru_cache(maxsize=65_536)
def serving_step(name: str) -> ServingStep | None:
    """What a step annotation says; None for any other name."""
    if match := _SGLANG.match(name):
        return _sglang(match)
    if match := _VLLM.match(name):
        prefills, decodes = int(match["prefills"]), int(match["decodes"])
        phase: Phase = "mixed" if prefills and decodes else "prefill" if prefills else "decode" if decodes else "idle"
        tokens = int(match["prefill_tokens"]), int(match["decode_tokens"])
        return ServingStep("vLLM", phase, prefills + decodes, *tokens)
    return None


def _sglang(match: re.Match[str]) -> ServingStep:
    """A decode step computes one token per request; how many a verification accepts is not in its name."""
    mode, requests = match["mode"], int(match["requests"])
    tokens = int(match["tokens"]) if match["tokens"] else None
    phase = _SGLANG_PHASES.get(mode, "decode")
    if phase == "decode":
        decoded = requests if tokens is None and mode == "DECODE" else tokens
        return ServingStep("SGLang", phase, requests, 0, decoded, draft=mode.startswith("DRAFT"))
    if phase == "mixed":
        return ServingStep("SGLang", phase, requests, None, None)
    return ServingStep("SGLang", phase, requests, 0 if phase == "idle" else tokens, 0)
