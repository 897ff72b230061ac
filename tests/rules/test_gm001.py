"""GM001 misaligned-gemm: pad matmul dimensions for Tensor Cores."""

from __future__ import annotations

from typing import Any

import pytest
from support.findings import RULES, found
from support.jobs import facts_with
from support.planted import PlantedFault

from traceopt.analyzer.facts import Facts
from traceopt.rules.catalogue.gm001_misaligned_gemm import LOADED
from traceopt.rules.savings.price import Priced
from traceopt.testing import A100, Machine
from traceopt.testing import events as build


class TestPlanted(PlantedFault):
    code = "GM001"
    within = 0.10


@pytest.mark.parametrize(
    ("job", "role", "code"),
    [
        ({"vocabulary": 50257}, "vocabulary 50257 to 50304", "vocab_size = 50304"),
        (
            {"attention": "math", "tokens": 1001, "batch": 1, "layers": 1},
            "tokens or samples of the batch 1001 to 1024",
            "F.pad",
        ),
    ],
)
def test_gm001_says_what_to_pad(job: dict[str, Any], role: str, code: str) -> None:
    (priced,) = type(RULES["GM001"])(min_share=0.0).check(facts_with(steps=3, **job))  # type: ignore[call-arg]
    finding = priced.finding if isinstance(priced, Priced) else priced
    assert role in finding.fix.text
    assert code in (finding.fix.code or "")


@pytest.mark.parametrize(
    ("m", "n", "k", "says"),
    [
        (5, 5, 64, "sequence length 5 to 8"),  # scores of five tokens with each other
        (5, 64, 5, "sequence length 5 to 8"),  # their output
        (512, 77, 64, "sequence length 77 to 80"),  # scores with 77 tokens of a text
        (512, 512, 100, "head size 100 to 104"),
        (512, 100, 512, "head size 100 to 104"),
        (512, 1_500, 100, "sequence length 1500 to 1504, head size 100 to 104"),
    ],
)
def test_gm001_tells_head_sizes_from_tokens(m: int, n: int, k: int, says: str) -> None:
    (finding,) = found("GM001", batched_products(m, n, k, between="softmax_warp_forward<float>"))
    assert finding.fix.text == f"Pad the size at its source: {says}.{LOADED}"


def test_gm001_names_attention_only_around_a_softmax() -> None:
    """The products of a recommender's features are batched, too."""
    (finding,) = found("GM001", batched_products(647, 30, 96, between="void at::native::elementwise_kernel<4>"))
    assert finding.fix.text == f"Pad the size at its source: dimension 30 to 32.{LOADED}"
    assert "attention" not in (finding.fix.code or "")


PRODUCT = "ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_nn"


def batched_products(m: int, n: int, k: int, between: str) -> Facts:
    """Two batched matmuls per step with another kernel between them."""
    machine = Machine(A100)
    for _ in range(3):
        with machine.step():
            sizes = {"Input Dims": [[16, m, k], [16, k, n]], "Input type": ["c10::Half", "c10::Half"]}
            for name in (PRODUCT, between, PRODUCT):
                start = machine.now
                machine.launch(30 if name == between else 900, name=name)
                operator = ("aten::add", {}) if name == between else ("aten::bmm", sizes)
                machine.events.append(build.op(operator[0], start, machine.now - start, **operator[1]))
            machine.synchronize()
    return machine.facts()
