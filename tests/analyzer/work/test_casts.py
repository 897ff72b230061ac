"""Casts on the device: casts of weights, casts that are undone at once, and copies that are not casts."""

from __future__ import annotations

from typing import Any

import pytest
from support.facts import facts_of

from traceopt.testing.events import Json, kernel, op, runtime

HALF, FLOAT = "c10::BFloat16", "float"
GEMM = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_tn"


def copy(
    at: float, number: int, size: Any, target: str, source: str, name: str = "direct_copy_kernel_cuda"
) -> list[Json]:
    dims = {"Input Dims": [size, size, []], "Input type": [target, source, "Scalar"]}
    return [
        op("aten::copy_", at, 9, **dims),
        runtime("cudaLaunchKernel", at + 2, 2, number),
        kernel(name, at + 5, 4, number),
    ]


def mm(at: float, number: int, m: int, n: int, k: int) -> list[Json]:
    dims = {"Input Dims": [[m, k], [k, n]], "Input type": [HALF, HALF]}
    return [
        op("aten::mm", at, 9, **dims),
        runtime("cudaLaunchKernel", at + 2, 2, number),
        kernel(GEMM, at + 5, 4, number),
    ]


def test_of_a_weight_by_its_size() -> None:
    facts = facts_of(copy(10, 1, [512, 64], HALF, FLOAT), copy(20, 2, [100, 64], HALF, FLOAT), mm(30, 3, 100, 512, 64))
    found = {one.size: (one.source, one.target, one.of_weight) for one in facts.casts.kinds}
    assert found == {(512, 64): ("fp32", "bf16", True), (100, 64): ("fp32", "bf16", False)}


def test_a_size_that_activations_have_too_is_no_weights() -> None:
    facts = facts_of(copy(10, 1, [512, 64], HALF, FLOAT), mm(30, 3, 100, 512, 64), mm(40, 4, 512, 7, 64))
    assert [one.of_weight for one in facts.casts.kinds] == [False]


def test_of_a_filter() -> None:
    conv = op(
        "aten::convolution", 40, 9, **{"Input Dims": [[1, 3, 8, 8], [16, 3, 3, 3], []], "Input type": [HALF, HALF, ""]}
    )
    facts = facts_of(copy(10, 1, [16, 3, 3, 3], HALF, FLOAT), [conv])
    assert [one.of_weight for one in facts.casts.kinds] == [True]


def test_turned_back_at_once() -> None:
    there, back = copy(10, 1, [7, 9], FLOAT, HALF), copy(20, 2, [7, 9], HALF, FLOAT)
    apart = [mm(30, 6, 2, 3, 5), copy(40, 3, [7, 9], FLOAT, HALF), mm(50, 4, 2, 3, 5), copy(60, 5, [7, 9], HALF, FLOAT)]
    assert facts_of(there, back, *apart).casts.undone.tolist() == [True, True, False, False, False, False]


@pytest.mark.parametrize(
    ("target", "source", "size"),
    [
        (HALF, HALF, [4, 4]),
        ("long int", FLOAT, [4, 4]),
        (HALF, FLOAT, "text"),
        (HALF, FLOAT, [[4]]),
        (HALF, FLOAT, [0]),
    ],
)
def test_no_cast(target: str, source: str, size: Any) -> None:
    assert facts_of(copy(10, 1, size, target, source)).casts.kinds == []


def test_a_copy_to_the_host_is_no_cast_of_the_device() -> None:
    events = copy(10, 1, [4, 4], HALF, FLOAT, name="Memcpy DtoH (Device -> Pageable)")
    events[2]["cat"] = "gpu_memcpy"
    assert all(not len(one.rows) for one in facts_of(events).casts.kinds)
