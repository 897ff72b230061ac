"""Bytes that one call of an operator must move, from the recorded shapes: each tensor read or written once.

Only operators whose result has a known size: matmuls, pointwise operators, copies, fills, softmax, normalization, and
reductions, whose result is small. A kernel may move more, or find a tensor in the cache.
"""

from __future__ import annotations

from math import prod
from typing import Any

from traceopt.analyzer.vocabulary.architectures import DTYPE_BYTES
from traceopt.analyzer.vocabulary.gemm_ops import gemm_shape, is_gemm, operand_type
from traceopt.analyzer.vocabulary.op_names import profiler_dtype

_ELEMENT_BYTES = {**DTYPE_BYTES, "bool": 1, "uint8": 1, "int16": 2, "int32": 4, "int64": 8}

# An underscore at the end of a name (in place) changes nothing. Tensors after the inputs are weights, statistics or the
# result itself.
_UNARY = frozenset(
    {
        "relu", "gelu", "silu", "sigmoid", "tanh", "exp", "log", "neg", "sqrt", "rsqrt", "abs", "reciprocal", "square",
        "leaky_relu", "hardtanh", "clamp", "clamp_min", "clamp_max", "pow", "erf", "sin", "cos", "_softmax",
        "_log_softmax", "native_layer_norm", "_fused_rms_norm", "native_batch_norm", "cudnn_batch_norm",
        "miopen_batch_norm",
    }
)  # fmt: skip
# Reads the gradient and one tensor more.
_BACKWARD = frozenset(
    {
        "threshold_backward", "gelu_backward", "silu_backward", "sigmoid_backward", "tanh_backward",
        "leaky_relu_backward", "hardtanh_backward", "_softmax_backward_data", "_log_softmax_backward_data",
        "native_layer_norm_backward", "native_batch_norm_backward", "cudnn_batch_norm_backward",
        "miopen_batch_norm_backward",
    }
)  # fmt: skip
_BROADCAST_INPUTS = {
    "add": 2, "sub": 2, "mul": 2, "div": 2, "maximum": 2, "minimum": 2, "masked_fill": 2,
    "where": 3, "addcmul": 3, "addcdiv": 3,
}  # fmt: skip
_REDUCTIONS = frozenset({"sum", "mean", "amax", "amin", "max", "min", "norm", "linalg_vector_norm", "argmax"})
_FILLS = frozenset({"fill", "zero"})


def is_pointwise(op: str) -> bool:
    """An operator that computes each element from those at the same place, or a norm: what compilers fuse. Fills,
    copies, scatters and reductions are none.
    """
    name = op.removeprefix("aten::").removesuffix("_")
    return name in _UNARY or name in _BACKWARD or name in _BROADCAST_INPUTS


def least_bytes(op: str, dims: Any, types: Any) -> float | None:
    """Bytes of one call; None if they do not follow from the sizes and types of the arguments (decoded JSON)."""
    if not isinstance(dims, list) or not isinstance(types, list) or not op.startswith("aten::"):
        return None
    if is_gemm(op):
        return _matmul(op, dims, types)
    tensors = _tensors(dims, types)
    if not tensors:
        return None
    name = op.removeprefix("aten::").removesuffix("_")
    first = _bytes(tensors[:1])
    if name in _FILLS or name in _REDUCTIONS:
        return first
    if name == "copy":
        return _bytes(tensors) if len(tensors) == 2 and tensors[0][0] == tensors[1][0] else None
    if name in _UNARY:
        return 2 * first
    if name in _BACKWARD and len(tensors) > 1:
        return _bytes(tensors[:2]) + first
    if name in _BROADCAST_INPUTS:
        inputs = tensors[: _BROADCAST_INPUTS[name]]
        widths = [width for size, width in inputs if size] or [width for _, width in inputs]  # scalars adapt
        return _bytes(inputs) + prod(_broadcast([size for size, _ in inputs])) * max(widths)
    return None


def _matmul(op: str, dims: list[Any], types: list[Any]) -> float | None:
    shape = gemm_shape(op, dims, types)
    width = DTYPE_BYTES.get(profiler_dtype(operand_type(op, types) or "") or "")
    if shape is None or width is None:
        return None
    m, n, k, batch = shape
    return (m * k + k * n + m * n) * batch * width


def _tensors(dims: list[Any], types: list[Any]) -> list[tuple[list[int], float]]:
    """Size, and bytes of an element, of each tensor argument; empty if one of them is not known."""
    found = []
    for size, kind in zip(dims, types, strict=False):
        width = _ELEMENT_BYTES.get(profiler_dtype(str(kind)) or "")
        if width is None:
            if size:  # a tensor of an unknown type, or a list of tensors; Python scalars have the size []
                return []
        elif isinstance(size, list) and all(type(n) is int and n >= 0 for n in size):
            found.append((size, width))
        else:
            return []
    return found


def _bytes(tensors: list[tuple[list[int], float]]) -> float:
    return sum(prod(size) * width for size, width in tensors)


def _broadcast(sizes: list[list[int]]) -> list[int]:
    longest = max(len(size) for size in sizes)
    return [max(size[-axis] for size in sizes if len(size) >= axis) for axis in range(1, longest + 1)]
