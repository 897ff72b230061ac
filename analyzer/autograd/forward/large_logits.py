"""Losses over a large vocabulary, which read and write tensors with a number for each token and word."""

from __future__ import annotations

from math import prod

import numpy as np
from msgspec import Struct

from traceopt.analyzer.autograd.nodes import is_heavy
from traceopt.analyzer.autograd.operator_inputs import Shape, forward_calls, nodes_of, of_inputs, tensors
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.architectures import DTYPE_BYTES

LEAST_WORDS = 8192
LEAST_ELEMENTS = 1 << 22  # smaller logits fit into caches
LEAST_PART = 0.5  # of the logits: tensors from this size on are logits too, such as those without the last token


class LargeLogits(Struct, frozen=True):
    """Slices, in order: `losses` are the calls of the loss, `rows` all operators on tensors of that size but the
    matmuls, forward and backward. `shape` and `size_bytes` are those of the largest logits. `products` are the matmuls
    that compute logits, forward and backward, of hidden states of `width`; 0: unknown.
    """

    losses: I8
    rows: I8
    products: I8
    shape: Shape
    size_bytes: int
    width: int


def find_large_logits(regions: Regions, steps: Steps) -> LargeLogits | None:
    """None if no cross entropy of the forward passes is over so many words and tokens."""
    losses = forward_calls(regions, steps, op_names.CLASS_LOSSES.__contains__)
    logits = of_inputs(regions, losses, _logits)
    known = [(row, shape, size) for row, (shape, size) in zip(losses.tolist(), logits, strict=True) if shape]
    if not known:
        return None
    _, shape, size = max(known, key=lambda one: prod(one[1]))
    least, words = LEAST_PART * prod(shape), shape[1]
    others = forward_calls(regions, steps, lambda name: not is_heavy(name) and name not in op_names.PRODUCT_CALLS)

    def is_one(_name: str, dims: object, _types: object) -> bool:
        return any(words in tensor and prod(tensor) >= least for tensor in tensors(dims)[:1])

    large = np.array(of_inputs(regions, others, is_one), bool)
    rows = np.union1d(others[large], [row for row, _, _ in known]).astype(np.int64)
    nodes, _ = nodes_of(regions, rows)
    rows = np.union1d(rows, nodes).astype(np.int64)
    products, width = _products(regions, steps, words)
    losses = np.array([row for row, _, _ in known], np.int64)
    return LargeLogits(losses, rows, products, shape, int(prod(shape) * size), width)


def _products(regions: Regions, steps: Steps, words: int) -> tuple[I8, int]:
    """The matmuls with a matrix of so many rows or columns, forward and backward, and the other size of the matrix; 0
    if there are several.
    """
    rows = forward_calls(regions, steps, op_names.PRODUCT_CALLS.__contains__)
    widths = of_inputs(regions, rows, lambda _name, dims, _types: _width(tensors(dims), words))
    mine = np.array([width > 0 for width in widths], bool)
    nodes, _ = nodes_of(regions, rows[mine])
    different = set(widths) - {0}
    return np.union1d(rows[mine], nodes).astype(np.int64), different.pop() if len(different) == 1 else 0


def _width(inputs: list[Shape], words: int) -> int:
    matrices = [one for one in inputs if len(one) == 2 and words in one]
    return prod(matrices[0]) // words if len(matrices) == 1 else 0


def _logits(_name: str, dims: object, types: object) -> tuple[Shape, float]:
    """The shape of the logits and the bytes of a number; the empty shape for a loss of few classes or tokens."""
    shapes = tensors(dims)
    dtype = (
        op_names.profiler_dtype(types[0]) if isinstance(types, list) and types and isinstance(types[0], str) else None
    )
    if not shapes or len(shapes[0]) < 2 or shapes[0][1] < LEAST_WORDS or prod(shapes[0]) < LEAST_ELEMENTS:
        return (), 0.0
    return shapes[0], DTYPE_BYTES.get(dtype or "", 4)
