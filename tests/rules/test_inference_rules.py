"""Advice for training is left out of inference, and what is compiled is not told to compile."""

from __future__ import annotations

from fixtures.serving import VLLM, serve
from traceopt.rules.catalogue.tc003_low_tensor_core_use import LowTensorCoreUse
from traceopt.testing import answer

SIMT = "maxwell_fp16_hgemm_128x64_nn"


def test_tc003_does_not_apply_to_decode_steps() -> None:
    status = {
        phase: answer(LowTensorCoreUse, serve([phase] * 5, VLLM, kernel=SIMT))[0].status
        for phase in ("prefill", "decode")
    }
    assert status == {"prefill": "found", "decode": "not_applicable"}
