"""Work that fills the step and that no fix shortens is named: its kind, share, rate, operator and line."""

from __future__ import annotations

from typing import Any

import pytest
from support.findings import document_of

from traceopt.analyzer.facts import Facts
from traceopt.document.filling_work import ways_of_copies
from traceopt.testing import A100, Machine
from traceopt.testing.events import Json, kernel, op, read, runtime, span

BF16, DOUBLE = ["c10::BFloat16"] * 4, ["double"] * 2
HEADS = [[1, 32, 8192, 128]] * 3
SQUARE = [[4096, 4096]] * 2


def verdict_of(facts: Facts) -> str:
    return document_of(facts).verdict


def step_of(operators: list[str], kernels: dict[str, float], device: Json | None = A100, **args: Any) -> Facts:
    """Six steps of a line that calls nested operators; the last launches kernels of so many milliseconds."""
    machine = Machine(device)
    for _ in range(6):
        with machine.step():
            start, events = machine.now, len(machine.events)
            for name, ms in kernels.items():
                machine.launch(ms * 1_000, name=name)
            taken = machine.now - start
            nested = [op(one, start - 0.5 * d, taken + d, **args) for d, one in enumerate(reversed(operators), 1)]
            machine.events[events:events] = nested
            with machine.python("model.py(31): forward"):
                machine.synchronize()
            frame = machine.events[-1]
            frame["ts"], frame["dur"] = start - 5, frame["ts"] + frame["dur"] - start + 5
            machine.idle(10)
    return machine.facts()


@pytest.mark.parametrize(
    ("operators", "kernels", "args", "says"),
    [
        (
            ["aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention"],
            {"void pytorch_flash::flash_fwd_kernel<traits>(params)": 80.0},
            {"Input Dims": HEADS, "Input type": BF16[:3]},
            "Attention takes >99.9% of the step, at 4.4% of the bf16 peak: aten::scaled_dot_product_attention, "
            "model.py:31. Another head size",
        ),
        (
            ["aten::scatter_add_"],
            {"void at::native::_scatter_gather_elementwise_kernel<128, 8>(int)": 20.0},
            {},
            "Additions at indices take 99.9% of the step: aten::scatter_add_, model.py:31. If the indices stay",
        ),
        (
            ["MatMul4Bit"],
            {"void kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, 2>(float*)": 20.0},
            {},
            "Dequantization takes 99.9% of the step: model.py:31. With more rows, from a larger batch, fewer weights",
        ),
        (
            ["aten::convolution_backward"],
            {"naive_conv_ab_nonpacked_wrw_nchw_half_double_half.kd": 20.0},
            {},
            "Naive convolutions in FP16 in the backward pass take 99.9% of the step: aten::convolution_backward, "
            "model.py:31. MIOpen falls back to",
        ),
        (
            ["aten::convolution", "aten::miopen_convolution"],
            {"miopenSp3AsmConv_v30_3_1_gfx9_fp16_dot2_edc_stride1_group.kd": 20.0},
            {},
            "Convolutions in FP16 take 99.9% of the step: aten::convolution, model.py:31.",
        ),
        (
            ["aten::convolution", "aten::_conv_depthwise2d"],
            {"void at::native::conv_depthwise2d_forward_kernel_generic<c10::BFloat16, int>(...)": 20.0},
            {"Input Dims": [[64, 96, 56, 56], [96, 1, 7, 7]], "Input type": BF16[:2]},
            "Depthwise convolutions in BF16 take 99.9% of the step: aten::convolution, model.py:31. PyTorch's own",
        ),
        (
            ["MambaInnerFn"],
            {"void selective_scan_fwd_kernel<traits>(p)": 8.0, "void causal_conv1d_fwd_kernel<traits>(p)": 2.0},
            {},
            "State-space scans take 99.8% of the step: model.py:31.",
        ),
        (
            ["aten::mm"],
            {"sm80_xmma_gemm_f64f64": 20.0},
            {"Input Dims": SQUARE, "Input type": DOUBLE},
            "Matmuls take 99.9% of the step, at 35% of the fp64 peak: aten::mm, model.py:31. Another",
        ),
        (
            ["aten::embedding_dense_backward"],
            {"embedding_backward_feature_kernel<float>": 20.0},
            {},
            "Embedding lookups in the backward pass take 99.9% of the step: aten::embedding_dense_backward, "
            "model.py:31. If their vectors are summed or averaged, nn.EmbeddingBag",
        ),
        (
            ["autograd::engine::evaluate_function: IndexBackward0", "IndexBackward0", "aten::_index_put_impl_"],
            {"void cub::DeviceRadixSortOnesweepKernel<long>": 2.0, "indexing_backward_kernel<float, 4>": 18.0},
            {},
            "Indexing in the backward pass takes 99.9% of the step: aten::_index_put_impl_",
        ),
        (
            ["aten::grid_sampler_2d"],
            {"void at::native::grid_sampler_2d_kernel<float>": 20.0},
            {},
            "Grid sampling takes 99.9% of the step: aten::grid_sampler_2d",
        ),
        (
            ["vllm::rocm_aiter_fused_moe"],
            {"aiter_fused_moe_kernel_bf16": 20.0},
            {"Input Dims": [[4096, 1024], [8, 4096, 1024], [8, 1024, 2048], [4096, 2]], "Input type": BF16},
            "Mixture of experts takes 99.9% of the step, at 1.7% of the bf16 peak: vllm::rocm_aiter_fused_moe",
        ),
        (["mine::op"], {"my_own_thing": 20.0}, {}, "mine::op takes 99.9% of the step: model.py:31."),
    ],
)
def test_the_kind_of_work(operators: list[str], kernels: dict[str, float], args: Any, says: str) -> None:
    said = verdict_of(step_of(operators, kernels, **args))
    assert says in said
    assert "MFU" not in said


def test_without_the_peak_it_has_its_rate() -> None:
    facts = step_of(["aten::mm"], {"gemm": 20.0}, None, **{"Input Dims": SQUARE, "Input type": BF16[:2]})
    assert "Matmuls in BF16 take 99.9% of the step, at 6.9 TFLOP/s: aten::mm, model.py:31." in verdict_of(facts)


def test_work_of_less_than_a_third_of_the_step_is_not_named() -> None:
    kernels = {f"kernel_of_my_own_{number}": 5.0 for number in range(4)}
    assert verdict_of(step_of([], kernels)) == "GPU-bound: the GPU is busy for 99.9% of the step."


def test_work_that_a_fix_shortens_is_not_named() -> None:
    said = verdict_of(step_of(["aten::mm"], {"ampere_sgemm_128x64_nn": 20.0}, **{"Input Dims": SQUARE}))
    assert said.startswith("GPU-bound")
    assert "Matmuls take" not in said
    assert "Biggest lever: use mixed precision" in said


def test_a_fix_of_a_small_part_is_no_lever() -> None:
    kernels = {"ampere_sgemm_128x64_nn": 2.0, "kernel_of_my_own": 28.0}
    said = verdict_of(step_of(["aten::mm"], kernels, **{"Input Dims": SQUARE}))
    assert "First fix: use mixed precision" in said
    assert "lever" not in said


def test_a_file_of_a_few_events_has_its_share_of_the_time_of_the_gpu() -> None:
    """Without correlation ids, as ROCm's older profiler writes it: "External id" links the kernel to its launch."""
    events = [
        op("aten::convolution", 0, 1_000),
        runtime("hipLaunchKernel", 10, 5, 0),
        kernel("igemm_fwd_gtcx_nhwc_fp32_bx0", 50, 800, 0),
    ]
    for event in events[1:]:
        del event["args"]["correlation"]
        event["args"]["External id"] = 100
    said = verdict_of(Facts(read(events)))
    assert said == (
        "The file has only 1 GPU event, too few for a step. Record several complete steps. Convolutions in FP32 take "
        "100% of the GPU's time: aten::convolution."
    )


@pytest.mark.parametrize(("rows", "bound"), [(16, True), (4096, False)])
def test_matmuls_without_shapes_have_few_rows_where_all_others_do(rows: int, bound: bool) -> None:
    """As those of a CUDA graph that decodes."""
    machine = Machine(A100)
    for _ in range(6):
        with machine.step():
            machine.launch(8_000, name="ampere_bf16_s16816gemm_bf16_64x64_ldg8_f2f_stages_64x5_tn")
            start, at = machine.now, len(machine.events)
            machine.launch(1_000, name="ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_tn")
            shapes = {"Input Dims": [[rows, 4096], [4096, 8192]], "Input type": BF16[:2]}
            machine.events.insert(at, op("aten::mm", start - 0.5, machine.now - start + 1, **shapes))
            machine.synchronize()
    assert ("With 16 rows or fewer, reading the weights limits them" in verdict_of(machine.facts())) is bound


@pytest.mark.parametrize(
    ("pointwise_ms", "says"),
    [
        (5_000, "Matmuls in BF16 take 58%"),
        (10_000, "Pointwise, copy and norm kernels take 59% of the step: model.py:9."),
    ],
)
def test_kernels_that_could_be_fused_are_one_kind(pointwise_ms: float, says: str) -> None:
    """Each kind of them takes less than the matmuls."""
    machine = Machine(A100)
    for _ in range(6):
        with machine.step():
            machine.launch(7_000, name="ampere_bf16_s16816gemm_bf16_64x64_ldg8_f2f_stages_64x5_tn")
            with machine.python("model.py(9): loss"):
                for name in ("vectorized_elementwise_kernel<4, AddFunctor>", "cunn_SoftMaxForward<4, float>"):
                    machine.launch(pointwise_ms / 2, name=f"void at::native::{name}")
                machine.synchronize()
    assert f" {says}" in verdict_of(machine.facts())


@pytest.mark.parametrize(
    ("copies", "says"),
    [
        ({"Memcpy HtoD (Pinned -> Device)": 5.0, "Memcpy DtoH (Device -> Pageable)": 1.0}, ", mostly to the GPU"),
        (
            {"Memcpy HtoD (Pinned -> Device)": 1.0, "Memcpy DtoH (Device -> Pageable)": 2.0},
            ", from the GPU and to the GPU",
        ),
        ({"Memcpy DtoD (Device -> Device)": 1.0}, ", mostly within the GPU"),
        ({"Memcpy HtoD (Pageable -> Device)": 3.0, "CopyHostToDevice": 2.0}, ""),  # an unknown way
        ({}, ""),
    ],
)
def test_exposed_copies_say_which_way_they_go(copies: dict[str, float], says: str) -> None:
    events = [span("gpu_memcpy", name, 3_000 * n, 500 * ms, tid=7) for n, (name, ms) in enumerate(copies.items())]
    assert ways_of_copies(Facts(read([op("aten::copy_", 0, 10), *events]))) == says
