"""GM003 to GM005 beyond their planted traces: what may depend on each other, what a larger batch really gives."""

from __future__ import annotations

import io
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from test_mm_ef import RULES, found, saving_of

from fixtures.generate import generate
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.rules.savings.price import Priced
from traceopt.testing import A100, Machine
from traceopt.testing import events as build

if TYPE_CHECKING:
    from conftest import GetExample

MLP = {"tokens": 1, "hidden": 8192, "layers": 1, "vocabulary": 1024, "small_ops": 0}


@cache
def facts_with(scenario: str = "healthy", **job: Any) -> Facts:
    return Facts(read_trace(io.BytesIO(generate(scenario, **job).to_bytes()), "trace.json"))


@pytest.mark.parametrize("code", ["GM003", "GM004", "GM005"])
@pytest.mark.parametrize("scenario", ["healthy", "five_faults", "launch_bound", "fp32_matmul"])
def test_silent_without_their_fault(example: GetExample, code: str, scenario: str) -> None:
    assert found(code, example(scenario).facts) == []


class TestSkinnyBatch:
    def test_what_the_products_give_back_for_the_same_samples(self) -> None:
        few, many = facts_with(batch=8, **MLP), facts_with(batch=32, **MLP)
        (finding,) = found("GM005", few)
        gain_us = (few.gemms.total_ns - many.gemms.total_ns / 4) / few.steps.count / 1e3
        saving = saving_of(finding)
        assert saving.low_us <= gain_us <= saving.high_us * 1.02
        assert "8 rows or fewer" in finding.why
        assert "model.py:36" in [str(place) for place in finding.locations]

    def test_silent_with_rows_enough(self) -> None:
        assert found("GM005", facts_with(batch=256, **MLP)) == []

    def test_silent_on_a_full_device(self) -> None:
        facts = facts_with(batch=8, reserved_bytes=30_000_000_000, **MLP)
        assert found("GM005", facts) == []
        assert "no room" in (RULES["GM005"].applies(facts) or "")


def test_fused_attention_is_no_mixed_precision() -> None:
    """In FP32 it uses Tensor Cores, too."""
    facts = facts_with("fp32_matmul", tokens=4096, batch=1)
    work = facts.tensor_core_work
    assert work.used_ns > 0.1 * work.eligible_ns
    (finding,) = found("TC001", facts)
    assert "in FP32, without the Tensor Cores of the NVIDIA A100-SXM4-40GB." in finding.why


def test_gm004_leaves_what_may_be_a_chain_alone(example: GetExample, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products whose result could be the next one's input: N equals K."""
    facts = example("looped_products").facts
    assert found("GM004", facts)
    square = Facts(facts.trace)
    sizes = facts.gemm_calls.sizes.copy()
    sizes[:, 2] = sizes[:, 1]
    monkeypatch.setitem(square.gemm_calls.__dict__, "sizes", sizes)
    assert found("GM004", square) == []


def test_gm003_names_the_projections(example: GetExample) -> None:
    (finding,) = found("GM003", example("split_projections").facts)
    assert "3 x aten::mm" in finding.evidence[0].what
    assert "64 thread blocks each on 108" in (finding.evidence[0].detail or "")


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


class TestFp8:
    def test_a_remark_on_a_device_that_has_it(self) -> None:
        (finding,) = found("TC005", facts_with(gpu="H100"))
        assert finding.saving is None
        assert "convert_to_float8_training" in (finding.fix.code or "")

    def test_silent_without_it_and_on_small_products(self, example: GetExample) -> None:
        assert "no FP8" in (RULES["TC005"].applies(example("healthy").facts) or "")
        assert found("TC005", facts_with(gpu="H100", hidden=1024, batch=1)) == []


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
    assert finding.fix.text == f"Pad the size at its source: {says}."


def test_gm001_names_attention_only_around_a_softmax() -> None:
    """The products of a recommender's features are batched, too."""
    (finding,) = found("GM001", batched_products(647, 30, 96, between="void at::native::elementwise_kernel<4>"))
    assert finding.fix.text == "Pad the size at its source: dimension 30 to 32."
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
