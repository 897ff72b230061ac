"""Bytes that an operator must move, from the sizes and types of its arguments."""

from __future__ import annotations

from typing import Any

import pytest

from traceopt.analyzer.vocabulary.formulas.byte_formulas import least_bytes


@pytest.mark.parametrize(
    ("op", "dims", "types", "expected"),
    [
        ("aten::relu", [[10, 4]], ["float"], 2 * 40 * 4),
        ("aten::relu_", [[10, 4]], ["c10::Half"], 2 * 40 * 2),
        ("aten::clamp_min", [[10, 4], [], [10, 4]], ["float", "Int", "float"], 2 * 40 * 4),  # the result is given
        ("aten::add", [[10, 4], [4], []], ["float", "float", "Scalar"], (40 + 4 + 40) * 4),
        ("aten::mul", [[10, 1], [1, 4]], ["float", "float"], (10 + 4 + 40) * 4),
        ("aten::mul", [[10, 4], []], ["c10::BFloat16", "double"], 2 * 40 * 2 + 8),  # the scalar adapts to the tensor
        ("aten::where", [[10], [10], []], ["bool", "float", "float"], 10 + 40 + 4 + 40),
        ("aten::copy_", [[10], [10], []], ["c10::Half", "float", "Scalar"], 10 * (2 + 4)),
        ("aten::fill_", [[10], []], ["float", "Scalar"], 40),
        ("aten::sum", [[10, 4]], ["float"], 160),
        ("aten::gelu_backward", [[10], [10], []], ["float", "float", ""], 3 * 40),
        ("aten::mm", [[8, 16], [16, 4]], ["c10::Half", "c10::Half"], (8 * 16 + 16 * 4 + 8 * 4) * 2),
    ],
)
def test_each_tensor_moves_once(op: str, dims: Any, types: Any, expected: float) -> None:
    assert least_bytes(op, dims, types) == expected


@pytest.mark.parametrize(
    ("op", "dims", "types"),
    [
        ("aten::cat", [[[10], [10]], []], ["TensorList", "Scalar"]),  # the size of the result is not known
        ("aten::copy_", [[10], [1]], ["float", "float"]),  # a view that repeats its elements
        ("aten::add", [[10], [10]], ["float", "c10::qint8"]),
        ("aten::add", [[[10]], [10]], ["TensorList", "float"]),
        ("aten::relu", [["x"]], ["float"]),
        ("aten::relu", "10", ["float"]),
        ("aten::relu", [[10]], None),
        ("mylib::relu", [[10]], ["float"]),
    ],
)
def test_what_does_not_follow_from_the_sizes_is_unknown(op: str, dims: Any, types: Any) -> None:
    assert least_bytes(op, dims, types) is None
