"""FLOP of one call of an operator, from the recorded shapes: matmuls, convolutions, attention.

A multiply-add counts as two. Causal attention counts half of its scores, which is what must be computed. Sources:
matmuls and convolutions by definition; attention after Dao, "FlashAttention-2" (2023), section 4.1: two products
forward, four backward, and a fifth if a fused kernel recomputes the scores.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from math import prod
from typing import Any

from msgspec import Struct

from traceopt.analyzer.vocabulary.gemm_ops import gemm_shape, is_gemm
from traceopt.analyzer.vocabulary.op_names import profiler_dtype

# Position of `is_causal` among the arguments, and whether it is the backward.
_ATTENTION = {
    "aten::_scaled_dot_product_flash_attention": (4, False),
    "aten::_scaled_dot_product_efficient_attention": (6, False),
    "aten::_scaled_dot_product_cudnn_attention": (6, False),
    "aten::_scaled_dot_product_flash_attention_backward": (11, True),
    "aten::_scaled_dot_product_efficient_attention_backward": (11, True),
    "aten::_scaled_dot_product_cudnn_attention_backward": (14, True),
    "aten::_scaled_dot_product_flash_attention_for_cpu": (4, False),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": (7, True),
}
# The same for tensors with the dimensions (batch, token, head, size).
_ATTENTION_BY_TOKEN = {"flash_attn::_flash_attn_forward": (5, False), "flash_attn::_flash_attn_backward": (11, True)}
FUSED_ATTENTION = frozenset({*_ATTENTION, *_ATTENTION_BY_TOKEN})
_CONVOLUTION = ("aten::convolution", "aten::_convolution")
# Positions of the gradient, the input and the weight; the older names are cuDNN's of 2021.
_CONVOLUTION_BACKWARD = {"aten::convolution_backward": (0, 1, 2), "aten::cudnn_convolution_backward": (1, 0, 2)}
# One kernel for both products of the experts, as aiter's in vLLM: tokens, two weights of all experts, chosen experts.
_EXPERTS = re.compile(r"(?i)fused_moe|fused_experts")
_COUNTED = frozenset({*FUSED_ATTENTION, *_CONVOLUTION, *_CONVOLUTION_BACKWARD})


class OpFlops(Struct, frozen=True):
    """FLOP of one call: `model` is what the mathematics needs, `executed` what the kernels do for it in `products`
    products of the same size. `elements`: numbers that these products read and write at least, each tensor once.
    """

    model: float
    executed: float
    elements: float
    products: int = 1


def is_counted(op: str) -> bool:
    """Whether the FLOP of the operator follow from its shapes."""
    return op in _COUNTED or is_gemm(op) or _EXPERTS.search(op) is not None


def op_flops(
    op: str, dims: Any, concrete: Any, outputs: Sequence[int] | None = None, types: Any = None
) -> OpFlops | None:
    """FLOP of a call; None if the shapes are not sufficient. `outputs` is the output size of a convolution,
    if known.
    """
    if not isinstance(dims, list):
        return None
    values = concrete if isinstance(concrete, list) else []
    if is_gemm(op):
        shape = gemm_shape(op, dims, types)
        if shape is None:
            return None
        m, n, k, batch = shape
        return _same(2.0 * prod(shape), (m * k + k * n + m * n) * batch)
    if op in _ATTENTION or op in _ATTENTION_BY_TOKEN:
        return _attention(op, dims, values)
    if op in _CONVOLUTION:
        return _convolution(dims, values, outputs)
    if op in _CONVOLUTION_BACKWARD:
        return _convolution_backward(op, dims, values)
    return _experts(dims) if _EXPERTS.search(op) else None


def argument_sizes(op: str, dims: Any, concrete: Any) -> str:
    """The sizes that decide what a convolution or attention costs: "32x64x56x56, weight 128x64x3x3, stride 2"; "" if
    they are not known.
    """
    if not isinstance(dims, list):
        return ""
    values = concrete if isinstance(concrete, list) else []
    if op in _ATTENTION or op in _ATTENTION_BY_TOKEN:
        causal_at, backward = _ATTENTION.get(op) or _ATTENTION_BY_TOKEN[op]
        query, key = (_size(dims, position + backward) for position in (0, 1))
        causal = causal_at < len(values) and str(values[causal_at]) == "True"
        return "" if not query or not key else _attention_sizes(query, key, op in _ATTENTION_BY_TOKEN, causal)
    _, input_at, weight_at = _CONVOLUTION_BACKWARD.get(op, (0, 0, 1))
    x, weight = _size(dims, input_at), _size(dims, weight_at)
    if not x or not weight:
        return ""
    stride_at = weight_at + 2  # after the bias
    stride = _integers(values[stride_at], len(x) - 2) if stride_at < len(values) else None
    strides = sorted(set(stride or [1]), reverse=True)
    words = f", stride {'x'.join(map(str, strides))}" if strides != [1] else ""
    return f"{_times(x)}, weight {_times(weight)}{words}"


def _attention_sizes(query: tuple[int, ...], key: tuple[int, ...], by_token: bool, causal: bool) -> str:
    token = 1 if by_token else 2
    keys = f", {key[token]} keys" if len(key) > token < len(query) and key[token] != query[token] else ""
    return f"{_times(query)}{keys}{', causal' if causal else ''}"


def _times(size: tuple[int, ...]) -> str:
    return "x".join(map(str, size))


def attention_arguments(op: str, dims: Any, concrete: Any, types: Any) -> dict[str, Any] | None:
    """Sizes, type and mask of one of FUSED_ATTENTION, and whether it is the backward; None if one is unknown."""
    if not isinstance(dims, list) or not isinstance(types, list):
        return None
    causal_at, backward = _ATTENTION.get(op) or _ATTENTION_BY_TOKEN[op]
    query, key = (_size(dims, position + backward) for position in (0, 1))
    if not query or not key or not len(query) == len(key) == 4 or backward >= len(types):
        return None
    token, head = (1, 2) if op in _ATTENTION_BY_TOKEN else (2, 1)
    values = concrete if isinstance(concrete, list) else []
    return {
        "batch": query[0],
        "heads": query[head],
        "queries": query[token],
        "keys": key[token],
        "head_size": query[3],
        "dtype": profiler_dtype(str(types[backward])),
        "causal": causal_at < len(values) and str(values[causal_at]) == "True",
        "backward": backward,
    }


def convolution_output(op: str, dims: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
    """Input, weight and output sizes from the backward of a convolution: forward calls of 2021 do not record the
    stride.
    """
    positions = _CONVOLUTION_BACKWARD.get(op)
    if positions is None or not isinstance(dims, list):
        return None
    grad, x, weight = (_size(dims, position) for position in positions)
    return (x, weight, grad) if grad and x and weight else None


def convolution_arguments(op: str, dims: Any, concrete: Any) -> dict[str, Any] | None:
    """Input and weight sizes, stride, padding, dilation and groups of a convolution by its forward or backward call;
    None if one is unknown, or it is transposed.
    """
    if not isinstance(dims, list) or not isinstance(concrete, list):
        return None
    _, input_at, weight_at = _CONVOLUTION_BACKWARD.get(op, (0, 0, 1))
    x, weight, values = _size(dims, input_at), _size(dims, weight_at), concrete[weight_at + 2 :]  # after the bias
    if not x or not weight or len(values) < 6 or str(values[3]) != "False":
        return None
    spatial = len(x) - 2
    stride, padding, dilation = (_integers(value, spatial) for value in values[:3])
    groups = _integers(values[5], 1)
    if stride is None or padding is None or dilation is None or groups is None:
        return None
    found = {"stride": tuple(stride), "padding": tuple(padding), "dilation": tuple(dilation), "groups": groups[0]}
    return {"input": x, "weight": weight, **found}


def _same(flops: float, elements: float) -> OpFlops:
    return OpFlops(flops, flops, elements)


def _size(dims: list[Any], position: int) -> tuple[int, ...] | None:
    if position >= len(dims) or not isinstance(dims[position], list):
        return None
    size = dims[position]
    return tuple(size) if size and all(type(n) is int and n > 0 for n in size) else None


def _attention(op: str, dims: list[Any], values: list[Any]) -> OpFlops | None:
    causal_at, backward = _ATTENTION.get(op) or _ATTENTION_BY_TOKEN[op]
    query, key, value = (_size(dims, position) for position in ((1, 2, 3) if backward else (0, 1, 2)))
    if not (query and key and value) or not len(query) == len(key) == len(value) == 4:
        return None
    by_token = op in _ATTENTION_BY_TOKEN
    batch, heads, tokens = (query[0], query[2], query[1]) if by_token else query[:3]
    keys = key[1] if by_token else key[2]
    forward = 2.0 * batch * heads * tokens * keys * (query[3] + value[3])
    if causal_at < len(values) and str(values[causal_at]) == "True":
        forward /= 2
    result = prod(query[:3]) * value[3]
    elements = prod(query) + prod(key) + prod(value) + result
    if backward:  # reads these and the result's gradient, and writes the gradients of query, key and value
        return OpFlops(2 * forward, 2.5 * forward, 2.0 * elements)
    return _same(forward, elements)


def _experts(dims: list[Any]) -> OpFlops | None:
    """Each token goes through the first and the second matrix of each expert that was chosen for it."""
    tokens, first, second, chosen = (_size(dims, position) for position in range(4))
    if not (tokens and first and second and chosen):
        return None
    if tuple(map(len, (tokens, first, second, chosen))) != (2, 3, 3, 2):
        return None
    if tokens[1] != first[2] or first[0] != second[0] or second[1] != tokens[1] or chosen[0] != tokens[0]:
        return None
    used = min(prod(chosen), first[0])  # experts of which the weights are read
    elements = used * (prod(first[1:]) + prod(second[1:])) + 2 * prod(tokens)
    return _same(2.0 * prod(chosen) * (prod(first[1:]) + prod(second[1:])), elements)


def _convolution(dims: list[Any], values: list[Any], outputs: Sequence[int] | None) -> OpFlops | None:
    """2 x output x weights of one output channel; the reverse for a transposed convolution."""
    x, weight = _size(dims, 0), _size(dims, 1)
    if not x or not weight or len(x) != len(weight) or len(x) < 3:
        return None
    transposed = len(values) > 6 and str(values[6]) == "True"
    if transposed:
        return _same(2.0 * prod(x) * prod(weight[1:]), math.nan)  # its output size does not follow from its arguments
    size = _output_size(x, weight, values) if outputs is None else tuple(outputs[2:])
    if size is None:
        return None
    elements = prod(x) + prod(weight) + x[0] * weight[0] * prod(size)
    return _same(2.0 * x[0] * prod(size) * prod(weight), elements)


def _output_size(x: tuple[int, ...], weight: tuple[int, ...], values: list[Any]) -> tuple[int, ...] | None:
    spatial = len(x) - 2
    settings = [_integers(values[at], spatial) if at < len(values) else None for at in (3, 4, 5)]
    stride, padding, dilation = settings
    if stride is None or padding is None or dilation is None or 0 in stride:
        return None
    size = [
        (x[2 + i] + 2 * padding[i] - dilation[i] * (weight[2 + i] - 1) - 1) // stride[i] + 1 for i in range(spatial)
    ]
    return tuple(size) if min(size) > 0 else None


def _integers(text: Any, count: int) -> list[int] | None:
    """ "[1, 1]" -> [1, 1]; a single number stands for all."""
    parts = str(text).strip("[]() ").split(",")
    try:
        numbers = [int(part) for part in parts]
    except ValueError:
        return None
    return numbers * count if len(numbers) == 1 else numbers if len(numbers) == count else None


def _convolution_backward(op: str, dims: list[Any], values: list[Any]) -> OpFlops | None:
    """The gradients of the weight and of the input (except in the first layer) cost as much as the forward each."""
    sizes = convolution_output(op, dims)
    if sizes is None:
        return None
    x, weight, grad = sizes
    if len(grad) != len(weight) or len(grad) < 3:
        return None
    transposed = len(values) > 7 and str(values[7]) == "True"
    once = 2.0 * (prod(x) * prod(weight[1:]) if transposed else grad[0] * prod(grad[2:]) * prod(weight))
    mask = str(values[-1]) if values and str(values[-1]).count(",") == 2 else "[True, True, True]"
    wanted = mask.strip("[] ").split(",")[:2]
    products = sum(part.strip() == "True" for part in wanted)
    elements = prod(x) + prod(weight) + prod(grad)  # a product reads two of them and writes the third
    return OpFlops(once * products, once * products, elements * products, products)
