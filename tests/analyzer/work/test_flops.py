"""FLOP from shapes: by formula for single calls, by known models for whole traces, without recomputation for MFU."""

from __future__ import annotations

from typing import Any

import pytest
from support.facts import facts_on_an_a100
from support.traces import GetExample

from fixtures.real_traces import TRACES
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.vocabulary.formulas.flop_formulas import op_flops
from traceopt.testing.events import Json, kernel, op, python, runtime

QKV = [[2, 8, 100, 64]] * 3
SAME = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]


def flops(name: str, dims: Any, concrete: Any = None) -> tuple[float, float] | None:
    found = op_flops(name, dims, concrete)
    return (found.model, found.executed) if found else None


class TestFormulas:
    def test_products(self) -> None:
        assert flops("aten::mm", [[3, 5], [5, 7]]) == (210, 210)
        assert flops("aten::bmm", [[4, 3, 5], [4, 5, 7]]) == (840, 840)

    def test_attention(self) -> None:
        name = "aten::_scaled_dot_product_flash_attention"
        whole = 2 * 2 * 8 * 100 * 100 * 128
        assert flops(name, QKV, ["", "", "", "0.", "False", "False"]) == (whole, whole)
        assert flops(name, QKV, ["", "", "", "0.", "True", "False"]) == (whole / 2, whole / 2)
        backward = f"{name}_backward"
        assert flops(backward, [QKV[0], *QKV, QKV[0]], [""] * 11 + ["False"]) == (2 * whole, 2.5 * whole)

    @pytest.mark.parametrize(
        ("setting", "value", "pixels"), [(3, "[2, 2]", 16), (4, "[0, 0]", 36), (5, "[2, 2]", 36), (3, "2", 16)]
    )
    def test_convolution_output(self, setting: int, value: str, pixels: int) -> None:
        concrete = [value if at == setting else text for at, text in enumerate(SAME)]
        expected = 2 * 10 * pixels * 32 * 16 * 9
        assert flops("aten::convolution", [[10, 16, 8, 8], [32, 16, 3, 3], []], concrete) == (expected, expected)

    def test_grouped_and_transposed(self) -> None:
        depthwise = flops("aten::convolution", [[1, 16, 8, 8], [16, 1, 3, 3], []], SAME)
        assert depthwise == (2 * 64 * 16 * 9,) * 2
        concrete = [*SAME[:6], "True", *SAME[7:]]
        up = flops("aten::convolution", [[1, 16, 8, 8], [16, 4, 2, 2], []], concrete)
        assert up == (2 * 16 * 64 * 4 * 4,) * 2

    def test_convolution_backward(self) -> None:
        dims = [[10, 32, 8, 8], [10, 16, 8, 8], [32, 16, 3, 3]]
        once = 2 * 10 * 64 * 32 * 16 * 9
        settings = ["", "", "", "[0]", *SAME[3:]]
        assert flops("aten::convolution_backward", dims, [*settings, "[True, True, False]"]) == (2 * once,) * 2
        assert flops("aten::convolution_backward", dims, [*settings, "[False, True, True]"]) == (once,) * 2

    @pytest.mark.parametrize(
        ("name", "dims", "concrete"),
        [
            ("aten::convolution", [[10, 16, 8, 8], [32, 16, 3, 3]], None),
            ("aten::convolution", [[10, 16, 8, 8], [32, 16, 3, 3]], ["x"] * 9),
            ("aten::convolution", [[10, 16, 2, 2], [32, 16, 9, 9]], [*SAME[:4], "[0, 0]", *SAME[5:]]),
            ("aten::convolution_backward", [[10], [], [3, 3]], []),
            ("aten::_scaled_dot_product_flash_attention", [[4, 4]] * 3, []),
            ("aten::mm", "text", None),
            ("aten::add", [[2, 2], [2, 2]], None),
        ],
    )
    def test_unknown(self, name: str, dims: Any, concrete: Any) -> None:
        assert flops(name, dims, concrete) is None


def mm(at: float, correlation: int, size: int = 1000, tid: int = 1) -> list[Json]:
    dims = {"Input Dims": [[size, size], [size, size]], "Input type": ["c10::BFloat16"] * 2}
    return [
        op("aten::mm", at, 20, tid, **dims),
        runtime("cudaLaunchKernel", at + 5, 5, correlation, tid),
        kernel("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_tn", at + 30, 100, correlation),
    ]


def test_shares_of_the_peak() -> None:
    found = facts_on_an_a100(*mm(100, 1), *mm(300, 2)).flops
    assert found.executed == found.model == 4e9
    assert found.dtype == "bf16"
    assert found.mfu == found.hfu == pytest.approx(4e9 / 1e-3 / 312e12)


@pytest.mark.parametrize("around", ["torch/utils/checkpoint.py(1500): recompute_fn", "aten::linear"])
def test_what_checkpointing_computes_again_is_no_model_flop(around: str) -> None:
    node = op("autograd::engine::evaluate_function: ReluBackward0", 290, 200, 2)
    inside = (python if "/" in around else op)(around, 295, 100, 2)
    found = facts_on_an_a100(*mm(100, 1), node, inside, *mm(300, 2, tid=2), *mm(500, 3, tid=2)).flops
    assert found.executed == 6e9
    assert found.model == 4e9


def test_work_launched_before_the_file_is_left_out() -> None:
    earlier = kernel("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_tn", 10, 50, 99)
    assert facts_on_an_a100(earlier, *mm(100, 1)).flops.covered_share == 1


def test_a_share_of_the_peak_needs_most_of_the_work() -> None:
    unknown = [runtime("cudaLaunchKernel", 500, 5, 7), kernel("ampere_sgemm_128x64_tn", 520, 200, 7)]
    found = facts_on_an_a100(*mm(100, 1), *unknown).flops
    assert found.executed == 2e9
    assert found.covered_share == pytest.approx(1 / 3)
    assert not found.known
    assert found.mfu is None


def test_an_operator_inside_another_counts_once() -> None:
    dims = {"Input Dims": [[10, 16, 8, 8], [32, 16, 3, 3], []], "Input type": ["float"] * 2}
    dims["Concrete Inputs"] = SAME
    chain = [op("aten::convolution", 90, 50, **dims), op("aten::_convolution", 95, 40, **dims), *mm(100, 1)]
    assert facts_on_an_a100(*chain).flops.executed == 2 * 10 * 64 * 32 * 16 * 9


def test_a_transformer_takes_what_the_papers_say(example: GetExample) -> None:
    """6 N + 12 L H T per token ("PaLM", appendix B)."""
    facts = example("healthy").facts
    layers, hidden, tokens, batch = 2, 2048, 1024, 2
    per_token = 6 * (layers * 12 * hidden**2 + hidden * 50304) + 12 * layers * hidden * tokens
    assert facts.flops.known
    assert facts.flops.model / facts.steps.count == pytest.approx(per_token * tokens * batch, rel=1e-3)


@pytest.mark.real_traces
@pytest.mark.parametrize(
    ("path", "gflops"),
    [  # the forward of one image: 4.09 and 1.81 GMAC; the first convolution's input needs no gradient
        ("kineto/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz", 3 * 2 * 4.09 * 32),
        ("tracelens/mi300/resnet_act_checkpoint.json.gz", 3 * 2 * 1.81 * 10),
    ],
)
def test_real_resnets(path: str, gflops: float) -> None:
    with (TRACES / path).open("rb") as stream:
        facts = Facts(read_trace(stream, path))
    assert facts.flops.model / facts.steps.count / 1e9 == pytest.approx(gflops, rel=0.03)
