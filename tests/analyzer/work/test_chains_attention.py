"""Chains of kernels that could be fused, and unfused attention."""

from __future__ import annotations

import pytest
from support.facts import facts_of
from support.traces import GetExample

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.work.unfused_chains import MAX_GAIN
from traceopt.testing import A100, Machine
from traceopt.testing.events import Json, annotation, kernel, op, read, runtime

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float)"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*)"
GEMM = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_tn"
FUSED = "triton_poi_fused_add_mul_0"
FLASH = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4> >(x)"


def in_turn(*work: tuple[str, float] | tuple[str, float, int], ops: dict[str, str] | None = None) -> Facts:
    """Consecutive kernels, each launched by the operator that `ops` names for it, else by aten::add."""
    events: list[Json] = []
    at = 1000.0
    for correlation, (name, duration, *stream) in enumerate(work, 1):
        start = 10.0 * correlation
        events.append(op((ops or {}).get(name, "aten::add"), start, 8))
        events.append(runtime("cudaLaunchKernel", start + 1, 5, correlation))
        events.append(kernel(name, at, duration, correlation, stream=stream[0] if stream else 7))
        at += duration + 1
    return facts_of(events, step_us=100_000)


def test_a_chain_keeps_its_longest_kernel() -> None:
    chains = in_turn((ADD, 10), (NORM, 30), (ADD, 20), (GEMM, 100), (ADD, 5)).chains
    assert (chains.count, chains.kernels, chains.time_ns) == (1, 3, 60_000)
    assert chains.fused_gain_ns == 30_000
    assert chains.mask.tolist() == [True, True, True, False, False]  # the last one is on its own


def test_the_gain_of_long_chains_is_bounded() -> None:
    chains = in_turn(*[(ADD, 10.0), (NORM, 10.0)] * 5).chains
    assert (chains.time_ns, chains.fused_gain_ns) == (100_000, int(MAX_GAIN * 100_000))


def test_one_operator_again_and_again_is_no_chain() -> None:
    """It may work on one tensor after the other."""
    assert in_turn(*[(ADD, 10.0)] * 10).chains.count == 0


def test_streams_are_apart() -> None:
    """Kernels on two streams that alternate in time are two chains."""
    chains = in_turn((ADD, 10, 7), (ADD, 10, 20), (NORM, 10, 7), (GEMM, 10, 20), (ADD, 10, 20)).chains
    assert (chains.count, chains.kernels) == (1, 2)


@pytest.mark.parametrize("name", [GEMM, FUSED, FLASH, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"])
def test_what_cannot_be_merged(name: str) -> None:
    assert in_turn((name, 10), (name, 10)).chains.count == 0


def test_the_optimizers_kernels_are_the_optimizers() -> None:
    events = [
        annotation("ProfilerStep#0", 0, 1000),
        annotation("Optimizer.step#AdamW.step", 5, 100),
        *(runtime("cudaLaunchKernel", 10 + 10 * i, 5, i + 1) for i in range(4)),
        *(kernel(ADD, 200 + 20 * i, 15, i + 1) for i in range(4)),
    ]
    assert Facts(read(events)).chains.count == 0


ATTENTION = {GEMM: "aten::bmm", SOFTMAX: "aten::_softmax"}


def test_unfused_attention() -> None:
    facts = in_turn((NORM, 9), (GEMM, 50), (ADD, 10), (SOFTMAX, 20), (GEMM, 40), (NORM, 9), (ADD, 9), ops=ATTENTION)
    found = facts.unfused_attention
    assert found.mask.tolist() == [False, True, True, True, True, False, False]
    assert (found.count, found.product_ns, found.other_ns) == (1, 90_000, 30_000)
    assert facts.chains.mask.tolist() == [False] * 5 + [True, True]  # its kernels are in no other finding


def test_fused_attention_casts_and_drops_weights() -> None:
    for name in ("aten::copy_", "aten::native_dropout"):
        found = in_turn((GEMM, 50), (SOFTMAX, 20), (ADD, 10), (GEMM, 40), ops={**ATTENTION, ADD: name})
        assert found.unfused_attention.count == 1


def test_without_operators_the_grid_tells_products_of_heads_from_linear_layers() -> None:
    def mask(*grids: list[int], name: str = GEMM) -> list[bool]:
        names = [SOFTMAX if grid == [9, 1, 1] else name for grid in grids]
        events = [annotation("ProfilerStep#0", 0, 1000)]
        kernels = enumerate(zip(names, grids, strict=True))
        events += [kernel(name, 100 + 60 * i, 50, 0, grid=grid) for i, (name, grid) in kernels]
        return Facts(read(events)).unfused_attention.mask.tolist()

    linear, heads, softmax = [2, 200, 1], [1, 1, 256], [9, 1, 1]
    assert mask(linear, heads, softmax, heads, linear) == [False, True, True, True, False]
    assert not any(mask(linear, softmax, linear))
    assert all(mask(linear, softmax, linear, name="void gemmSN_NN_kernel<float, cublasGemvTensorStridedBatched>"))


@pytest.mark.parametrize(
    ("sequence", "ops"),
    [
        ((GEMM, SOFTMAX, GEMM), {GEMM: "aten::addmm"}),  # a classifier's softmax between linear layers
        ((GEMM, SOFTMAX, NORM), ATTENTION),  # no product after it: the loss
        ((GEMM, FLASH, SOFTMAX, GEMM), {**ATTENTION, FLASH: "aten::_flash_attention_forward"}),
        ((GEMM, *[ADD] * 9, SOFTMAX, GEMM), ATTENTION),  # too far apart
        ((GEMM, SOFTMAX, ADD, GEMM), {**ATTENTION, ADD: "aten::mul"}),  # other weights
        ((GEMM, ADD, SOFTMAX, GEMM), {**ATTENTION, ADD: "aten::tanh"}),  # other scores
        ((FLASH, FLASH), {}),
    ],
)
def test_what_is_no_unfused_attention(sequence: tuple[str, ...], ops: dict[str, str]) -> None:
    assert in_turn(*((name, 10.0) for name in sequence), ops=ops).unfused_attention.count == 0


def test_the_planted_attention(example: GetExample) -> None:
    """Forward and backward of each layer; flash attention leaves nothing."""
    facts = example("unfused_attention").facts
    # 2 layers, forward and backward.
    assert facts.unfused_attention.count / facts.steps.count == pytest.approx(4, abs=1)
    assert example("unfused_attention", fixed=True).facts.unfused_attention.count == 0


def test_the_planted_chains(example: GetExample) -> None:
    """GELU written as eight operators: the gain from fusing is close to the planted cost."""
    subject = example("unfused_elementwise")
    fixed = example("unfused_elementwise", fixed=True)
    gain = [one.facts.chains.fused_gain_ns / one.facts.steps.count for one in (subject, fixed)]
    assert gain[0] - gain[1] == pytest.approx(subject.planted.cost_us * 1e3, rel=0.35)


def test_a_chain_ends_with_its_step() -> None:
    """Merging kernels of two steps would leave no step."""
    machine = Machine(A100)
    for _ in range(3):
        with machine.step():
            for _ in range(10):
                machine.launch(10, name="vectorized_elementwise_kernel")
    chains = machine.facts().chains
    assert (chains.count, chains.kernels) == (3, 30)
