"""The work of each experiment, with torch: tensors once, then a function that does it."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from traceopt.result.experiments import (
    AllPairs,
    Attention,
    Convolution,
    Experiment,
    Lookup,
    Matmul,
    OptimizerStep,
    RowGradient,
    VocabularyLoss,
)

# So many bytes of operands take turns that none is in a cache: a training step touches others in between.
COLD_BYTES = 64 << 20
MOST_SETS = 8
_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}

Work = Callable[[], object]


def prepare(torch: Any, device: str, experiment: Experiment) -> Work:
    """A function that does the work once, each time on other tensors if they are small.

    Raises what torch raises where the device lacks memory, a dtype or an operator.
    """
    make = _MAKERS[type(experiment)]
    sets = max(1, min(MOST_SETS, COLD_BYTES // max(1, _bytes(experiment))))
    works, turn = [make(torch, device, experiment) for _ in range(sets)], [0]

    def work() -> object:
        turn[0] += 1
        return works[turn[0] % sets]()

    return work


def _bytes(experiment: Experiment) -> int:
    """Of the largest operands; at least those of the experiment's own numbers."""
    if isinstance(experiment, Matmul):
        m, n, k = experiment.m, experiment.n, experiment.k
        return _BYTES[experiment.dtype] * experiment.batch * (m * k + k * n + m * n)
    if isinstance(experiment, Convolution):
        return _BYTES[experiment.dtype] * (prod(experiment.input) + prod(experiment.weight))
    if isinstance(experiment, Attention):
        tokens = experiment.queries + 2 * experiment.keys
        return _BYTES[experiment.dtype] * experiment.batch * experiment.heads * tokens * experiment.head_size
    if isinstance(experiment, RowGradient):
        return _BYTES[experiment.dtype] * experiment.row_size * (experiment.table_rows + experiment.picked_rows)
    if isinstance(experiment, Lookup):
        rows = experiment.table_rows + experiment.picked_rows
        return _BYTES[experiment.dtype] * experiment.tables * experiment.row_size * rows
    if isinstance(experiment, AllPairs):
        vectors = experiment.left + experiment.right
        return _BYTES[experiment.dtype] * experiment.batch * vectors * experiment.size
    if isinstance(experiment, VocabularyLoss):
        return _BYTES[experiment.dtype] * (experiment.tokens + experiment.words) * experiment.width
    return COLD_BYTES  # an optimizer goes over all parameters each time


def _matmul(torch: Any, device: str, one: Matmul) -> Work:
    stored = "fp32" if one.from_fp32 else one.dtype
    left = _random(torch, device, (one.batch, one.m, one.k), stored)
    right = _random(torch, device, (one.batch, one.k, one.n), stored)
    if one.batch == 1:
        left, right = left[0], right[0]
    dtype = _type(torch, one.dtype)
    return _in_precision(torch, device, one.dtype, lambda: left.to(dtype) @ right.to(dtype))


def _convolution(torch: Any, device: str, one: Convolution) -> Work:
    rank = len(one.input) - 2
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(rank + 2) if one.channels_last else None
    images, weight = (_random(torch, device, size, one.dtype) for size in (one.input, one.weight))
    if layout is not None:
        images, weight = (tensor.to(memory_format=layout) for tensor in (images, weight))
    images.requires_grad_(one.backward)
    weight.requires_grad_(one.backward)
    call = (torch.conv1d, torch.conv2d, torch.conv3d)[rank - 1]

    def forward() -> Any:
        return call(images, weight, None, one.stride, one.padding, one.dilation, one.groups)

    return _in_precision(torch, device, one.dtype, _with_backward(torch, forward, (images, weight), one.backward))


def _attention(torch: Any, device: str, one: Attention) -> Work:
    sizes = [(one.batch, one.heads, tokens, one.head_size) for tokens in (one.queries, one.keys, one.keys)]
    query, key, value = (_random(torch, device, size, one.dtype).requires_grad_(one.backward) for size in sizes)
    mask = None
    if one.causal and not one.fused:
        mask = torch.full((one.queries, one.keys), float("-inf"), device=device, dtype=query.dtype).triu(1)

    def forward() -> Any:
        if one.fused:
            return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=one.causal)
        scores = query @ key.transpose(-2, -1) / one.head_size**0.5
        return (scores if mask is None else scores + mask).softmax(-1) @ value

    return _in_precision(torch, device, one.dtype, _with_backward(torch, forward, (query, key, value), one.backward))


def _optimizer_step(torch: Any, device: str, one: OptimizerStep) -> Work:
    parameters = [
        _random(torch, device, (elements,), "fp32").requires_grad_()
        for elements, count in one.parameters
        for _ in range(count)
    ]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    ways = {"foreach": one.implementation == "foreach", "fused": one.implementation == "fused"}
    work: Work = getattr(torch.optim, one.optimizer)(parameters, lr=1e-3, **ways).step
    return work


def _row_gradient(torch: Any, device: str, one: RowGradient) -> Work:
    table = _random(torch, device, (one.table_rows, one.row_size), one.dtype).requires_grad_()
    index = torch.randint(one.table_rows, (one.picked_rows,), device=device)
    if one.picked_by == "embedding":
        rows = torch.nn.functional.embedding(index, table)
    else:
        rows = table[index] if one.picked_by == "indexing" else table.index_select(0, index)
    gradient = torch.ones_like(rows)
    return lambda: torch.autograd.grad(rows, table, gradient, retain_graph=True)


def _lookup(torch: Any, device: str, one: Lookup) -> Work:
    sizes = [(one.table_rows, one.row_size)] * one.tables
    tables = [_random(torch, device, size, one.dtype).requires_grad_() for size in sizes]
    indices = [torch.randint(one.table_rows, (one.picked_rows,), device=device) for _ in tables]
    gradients = [torch.ones(one.picked_rows, one.row_size, dtype=tables[0].dtype, device=device) for _ in tables]
    look_up = torch.nn.functional.embedding

    def work() -> Any:
        rows = [look_up(index, table, sparse=one.sparse) for index, table in zip(indices, tables, strict=True)]
        of_tables = torch.autograd.grad(rows, tables, gradients)
        if one.updated:
            with torch.no_grad():
                for table, gradient in zip(tables, of_tables, strict=True):
                    table.add_(gradient, alpha=-1e-6)
        return of_tables

    return work


def _all_pairs(torch: Any, device: str, one: AllPairs) -> Work:
    left, right = (
        _random(torch, device, (one.batch, count, one.size), one.dtype).requires_grad_(one.backward)
        for count in (one.left, one.right)
    )
    compute = _without_vectors if one.by_matmul else _by_vectors

    def forward() -> Any:
        return compute(torch, one.kind, left, right)

    return _in_precision(torch, device, one.dtype, _with_backward(torch, forward, (left, right), one.backward))


def _by_vectors(torch: Any, kind: str, left: Any, right: Any) -> Any:
    """With a vector for each pair, as scripts do it."""
    left, right = left[:, :, None], right[:, None]
    if kind == "cosine":
        return torch.nn.functional.cosine_similarity(left, right, dim=-1)
    if kind == "product":
        return (left * right).sum(-1)
    differences = left - right
    if kind == "euclidean":
        return differences.norm(dim=-1)
    return (differences.abs() if kind == "manhattan" else differences.pow(2)).sum(-1)


def _without_vectors(torch: Any, kind: str, left: Any, right: Any) -> Any:
    if kind == "cosine":
        left, right = (torch.nn.functional.normalize(side, dim=-1) for side in (left, right))
    if kind in ("euclidean", "manhattan"):
        return torch.cdist(left, right, p=2.0 if kind == "euclidean" else 1.0)
    products = left @ right.transpose(-2, -1)
    if kind != "squared":
        return products
    return left.pow(2).sum(-1, keepdim=True) + right.pow(2).sum(-1)[:, None] - 2 * products


def _vocabulary_loss(torch: Any, device: str, one: VocabularyLoss) -> Work:
    from torch.utils.checkpoint import checkpoint

    hidden, weight = (
        _random(torch, device, (count, one.width), one.dtype).requires_grad_() for count in (one.tokens, one.words)
    )
    targets = torch.randint(one.words, (one.tokens,), device=device)
    functional = torch.nn.functional

    def loss(states: Any, wanted: Any) -> Any:
        return functional.cross_entropy(functional.linear(states, weight), wanted, reduction="sum")

    def forward() -> Any:
        if one.chunk >= one.tokens:
            return loss(hidden, targets)
        chunks = zip(hidden.split(one.chunk), targets.split(one.chunk), strict=True)
        return sum(checkpoint(loss, *chunk, use_reentrant=False) for chunk in chunks)

    return _in_precision(torch, device, one.dtype, _with_backward(torch, forward, (hidden, weight), True))


_MAKERS: dict[type, Callable[[Any, str, Any], Work]] = {
    Matmul: _matmul,
    Convolution: _convolution,
    Attention: _attention,
    OptimizerStep: _optimizer_step,
    RowGradient: _row_gradient,
    Lookup: _lookup,
    AllPairs: _all_pairs,
    VocabularyLoss: _vocabulary_loss,
}


def _with_backward(torch: Any, forward: Work, inputs: tuple[Any, ...], backward: bool) -> Work:
    if not backward:
        return forward
    gradient = torch.ones_like(forward())
    return lambda: torch.autograd.grad(forward(), inputs, gradient)


def _in_precision(torch: Any, device: str, dtype: str, work: Work) -> Work:
    """Products of FP32 numbers in TF32 or without it, as the experiment says; a CPU has none."""
    if not device.startswith("cuda") or dtype not in ("fp32", "tf32"):
        return work

    def exact() -> object:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = dtype == "tf32"
        return work()

    return exact


def _random(torch: Any, device: str, size: tuple[int, ...], dtype: str) -> Any:
    return torch.randn(size, device=device, dtype=_type(torch, dtype))


def _type(torch: Any, dtype: str) -> Any:
    return {"fp64": torch.float64, "bf16": torch.bfloat16, "fp16": torch.float16}.get(dtype, torch.float32)
