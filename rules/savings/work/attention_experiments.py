"""Attention that runs as separate operators, by size, as experiments: these operators, and one in their place."""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np
from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.json_values import listed
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.gemm_ops import gemm_shape, operand_type
from traceopt.result.experiments import DTYPES, Attention, Comparison
from traceopt.rules.savings.measured import MeasuredWork, Part, measured

_BATCHED = frozenset(("aten::bmm", "aten::baddbmm", "aten::baddbmm_"))
_TRIANGLES = frozenset(("aten::triu", "aten::triu_", "aten::tril", "aten::tril_"))
_Product = tuple[int, int, int]  # batch, rows and columns of a result


def fused_attention_work(facts: Facts, softmaxes: I8, time_ns: float) -> MeasuredWork:
    """Attention around these softmaxes of the forward pass (slices), which take so long per step with their products,
    and one operator in place of it. The head size is that of the batched product with the softmax's sizes.
    """
    ops, heads, triangles = facts.trace.ops, _heads(facts), _triangles(facts)
    calls = Counter(ops.dims[facts.slices.row[softmaxes]].tolist())
    parts = []
    for code, count in calls.items():
        size = listed(facts.trace.texts[code]) if code >= 0 else None
        shape = size[0] if size and isinstance(size[0], list) else []
        comparison = None
        if len(shape) > 2 and all(type(n) is int and n > 0 for n in shape):
            queries, keys, batch = shape[-2], shape[-1], prod(shape[:-2])
            if (found := heads.get((batch, queries, keys))) is not None:
                head_size, dtype = found
                causal = (queries, keys) in triangles
                apart = Attention(batch, 1, queries, keys, head_size, dtype, causal, fused=False, backward=facts.trains)
                comparison = Comparison(apart, replace(apart, fused=True))
        parts.append(Part(time_ns * count / len(softmaxes), comparison, count / facts.steps.count))
    return measured(facts, parts)


def softmaxes_of(facts: Facts, work: Mask) -> I8:
    """The operators of the forward pass that launch the softmaxes of this GPU work (slices)."""
    rows = facts.links.op_slice[work & facts.gpu.kind.among("softmax")]
    found = distinct_values(rows[rows >= 0])
    return found[facts.regions.named(op_names.is_softmax, OP)[found]].astype(np.int64)


def _triangles(facts: Facts) -> set[tuple[int, int]]:
    """The sizes of triangular matrices that the run makes: of scores, they are causal masks."""
    dims = facts.trace.ops.dims[facts.slices.row[facts.regions.named(_TRIANGLES.__contains__, OP)]]
    sizes = (listed(facts.trace.texts[code]) for code in distinct_values(dims[dims >= 0]))
    return {(size[0][-2], size[0][-1]) for size in sizes if size and isinstance(size[0], list) and len(size[0]) > 1}


def _heads(facts: Facts) -> dict[_Product, tuple[int, str]]:
    """Inner size and dtype of batched products, by the size of the result."""
    ops, slices, texts = facts.trace.ops, facts.slices, facts.trace.texts
    rows = np.flatnonzero(facts.regions.named(_BATCHED.__contains__, OP))
    found: dict[_Product, tuple[int, str]] = {}
    for name, dims, types in {
        (int(ops.name[row]), int(ops.dims[row]), int(ops.types[row])) for row in slices.row[rows].tolist()
    }:
        operator = facts.trace.names[name]
        shape = gemm_shape(operator, listed(texts[dims])) if dims >= 0 else None
        stored = operand_type(operator, listed(texts[types])) if types >= 0 else None
        dtype = op_names.profiler_dtype(stored) if stored else None
        if shape is not None and dtype in DTYPES:
            m, n, k, batch = shape
            found[batch, m, n] = (k, dtype)
    return found
