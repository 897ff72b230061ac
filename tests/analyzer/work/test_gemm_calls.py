"""Products call by call: which are adjacent, and how many thread blocks each has."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.facts import facts_on_an_a100

from traceopt.analyzer.facts import Facts
from traceopt.testing.events import Json, kernel, op, runtime, span

GEMM = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_tn"


def mm(
    at: float, correlation: int, size: tuple[int, int, int] = (64, 32, 16), call: str = "cudaLaunchKernel", **args: Any
) -> list[Json]:
    m, n, k = size
    dims = {"Input Dims": [[m, k], [k, n]], "Input type": ["c10::BFloat16"] * 2}
    shape = {"grid": [4, 2, 1], "block": [128, 1, 1]} | args
    return [
        op("aten::mm", at, 9, **dims),
        runtime(call, at + 2, 2, correlation),
        kernel(GEMM, at + 5, 4, correlation, **shape),
    ]


def launched(name: str, at: float, correlation: int) -> list[Json]:
    return [
        op("aten::other", at, 9),
        runtime("cudaLaunchKernel", at + 2, 2, correlation),
        kernel(name, at + 5, 4, correlation),
    ]


def lengths(facts: Facts, least: int = 2) -> list[int]:
    return [len(run) for run in facts.gemm_calls.runs(facts.gemm_calls.sizes, least)]


def test_calls_of_one_shape_form_a_run() -> None:
    facts = facts_on_an_a100(*(mm(10 + 10 * i, i + 1) for i in range(5)), mm(60, 9, size=(64, 32, 8)))
    assert lengths(facts) == [5]
    assert lengths(facts, 6) == []
    assert facts.gemm_calls.sizes[0].tolist()[:4] == [64, 32, 16, 1]
    assert facts.gemm_calls.busy_ns.tolist() == [4_000] * 6


def test_a_kernel_between_parts_them_and_a_copy_does_not() -> None:
    relu = launched("vectorized_elementwise_kernel<4, relu>", 20, 50)
    cast = launched("direct_copy_kernel_cuda(int)", 40, 51)
    assert lengths(facts_on_an_a100(mm(10, 1), relu, mm(30, 2), cast, mm(50, 3))) == [2]


def test_a_stream_of_its_own_is_no_neighbor() -> None:
    assert lengths(facts_on_an_a100(mm(10, 1), mm(20, 2, stream=9))) == []


def test_blocks_by_vendor() -> None:
    facts = facts_on_an_a100(
        mm(10, 1), mm(20, 2, call="hipExtModuleLaunchKernel", grid=[1024, 1, 1]), mm(30, 3, grid=[-1, 0, 1])
    )
    assert facts.gemm_calls.blocks.tolist() == [8, 8, -1]


def test_a_product_of_several_kernels_is_one_call() -> None:
    first, second = mm(10, 1), mm(30, 3)
    split = [runtime("cudaLaunchKernel", 15, 1, 2), kernel("splitKreduce_kernel<32>", 20, 3, 2)]
    facts = facts_on_an_a100(first, split, second)
    assert lengths(facts) == [2]
    assert facts.gemm_calls.busy_ns.tolist() == [7_000, 4_000]


def test_without_products() -> None:
    facts = facts_on_an_a100(launched("k", 10, 1), [span("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 30, 2, 7)])
    assert len(facts.gemm_calls) == 0
    assert facts.gemm_calls.runs(np.empty((0, 5), np.int64), 2) == []
