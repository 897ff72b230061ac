"""Unfused attention: product, softmax, product as separate kernels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.kernels.kernel_names import FUSIBLE_KINDS, says_batched
from traceopt.analyzer.work.tiny_ops import input_elements

SDPA = "aten::scaled_dot_product_attention"
MATH_SDPA = "aten::_scaled_dot_product_attention_math"
MOST = 0.8  # with this share of the unfused attention's forward kernels, all of it is attributed to the operator
BETWEEN = 8  # kernels between softmax and its products: scale, mask, dropout, casts
_BATCHED = ("aten::bmm", "aten::baddbmm", "aten::baddbmm_", "aten::matmul", "aten::einsum")


class UnfusedAttention(Struct, frozen=True):
    """`mask` marks the kernels of the pattern among the device's work; times in ns inside the window."""

    mask: npt.NDArray[np.bool_]
    count: int
    product_ns: int
    other_ns: int  # softmax, scale, mask, dropout, copies between the products
    drops: bool = False  # weights are dropped


def find_unfused_attention(gpu: GpuWork, regions: Regions) -> UnfusedAttention:
    """Finds each softmax whose nearest products before and after it are batched, on the same stream and with only
    pointwise work between them that fused attention can do as well.
    """
    work = gpu.work
    mask = np.zeros(len(work), bool)
    product = gpu.kind.among("gemm") & _batched(gpu, regions)
    light = gpu.kind.among(*FUSIBLE_KINDS, "index", "reduction", "memcpy", "memset", "other")
    order = np.lexsort((work.start, work.queue))
    position = np.empty(len(work), np.int64)
    position[order] = np.arange(len(work))
    runs = []
    for row in np.flatnonzero(gpu.kind.among("softmax") & gpu.is_inside).tolist():  # a few per layer
        before = _product(order, position[row], -1, product, light, work.queue)
        after = _product(order, position[row], +1, product, light, work.queue)
        if before is not None and after is not None:
            runs.append((before, int(position[row]), after))
    launched = regions.links.op_slice[order[np.array(runs, np.int64).reshape(-1, 3)]]
    fusible = fusible_attention(regions, *launched.T.astype(np.int64))
    for before, _, after in (run for run, wanted in zip(runs, fusible.tolist(), strict=True) if wanted):
        first, last = _widened(order, before, after, product, work.queue)
        mask[order[first : last + 1]] = True
    count = int(fusible.sum())
    inside = mask & gpu.is_inside
    product_ns = int(gpu.step_ns[inside & gpu.kind.among("gemm")].sum())
    drops = regions.work_under(regions.named(op_names.is_dropout, OP)) & inside
    return UnfusedAttention(inside, count, product_ns, int(gpu.step_ns[inside].sum()) - product_ns, bool(drops.any()))


def fusible_attention(regions: Regions, before: I8, softmax: I8, after: I8) -> Mask:
    """Whether fused attention can do what runs between the products around each softmax, forward and backward: scale
    and mask the scores, drop weights, cast and copy. It can change neither the scores in another way nor the weights.

    All are operators, as slices; -1: unknown, which is taken for fusible. Where shapes were recorded, only operators on
    tensors as large as the scores count.
    """
    count, known = len(softmax), np.flatnonzero((before >= 0) & (softmax >= 0) & (after >= 0))
    if not len(known):
        return np.ones(count, bool)
    before, softmax, after = before[known], softmax[known], after[known]
    back = regions.named(op_names.is_softmax_backward, OP)[softmax]
    dropout, changes = (regions.named(test, OP) for test in (op_names.is_dropout, op_names.is_arithmetic))
    of_scores = changes & ~regions.named(op_names.is_scale_or_mask, OP)
    wrong = np.zeros(len(known), bool)
    for i, backward in enumerate(back.tolist()):  # a few per layer
        sides = (of_scores, changes) if not backward else (changes, of_scores)
        spans = (before[i], softmax[i]), (softmax[i], after[i])
        wrong[i] = any(
            _runs(regions, mask, dropout, *span, softmax[i]) for mask, span in zip(sides, spans, strict=True)
        )
    numbers = _forward_numbers(regions, softmax)
    wrong |= np.isin(numbers, numbers[wrong & (numbers >= 0)])
    return ~np.isin(np.arange(count), known[wrong])


def _runs(regions: Regions, wanted: Mask, around: Mask, first: int, last: int, softmax: int) -> bool:
    """Whether a wanted operator begins between two operators of a thread, on tensors of the softmax's size, and not
    inside of those of the mask `around`.
    """
    slices = regions.slices
    if slices.thread[first] != slices.thread[last]:
        return False
    rows = np.arange(first, last)
    rows = rows[wanted[rows] & (slices.start[rows] >= slices.end[first])]
    rows = rows[slices.ancestor(rows, around) < 0]
    if not len(rows):
        return False
    sizes, size = input_elements(regions, rows), int(input_elements(regions, np.array([softmax]))[0])
    return not size or bool(((sizes == size) | (sizes == 0)).any())


def _forward_numbers(regions: Regions, softmax: I8) -> I8:
    """Autograd's number of each softmax; its backward has the same. -1: none."""
    slices = regions.slices
    node = slices.ancestor(softmax, regions.backward & (slices.kind == OP))
    return regions.trace.ops.sequence[slices.row[np.where(node >= 0, node, softmax)]]


def _batched(gpu: GpuWork, regions: Regions) -> npt.NDArray[np.bool_]:
    """Whether each row multiplies a batch, by its operator. Without one, by its name or its grid: the third dimension
    counts the matrices. A linear layer has one.
    """
    op, names = regions.op_of_work, gpu.trace.names
    operator = np.array([name in _BATCHED for name in names] or [False])[np.maximum(op, 0)]
    named = np.array([says_batched(name) for name in names] or [False])[gpu.work.name]
    return np.asarray(np.where(op >= 0, operator, named | (gpu.work.grid[:, 2] > 1)))


def _widened(
    order: npt.NDArray[np.int64], first: int, last: int, product: npt.NDArray[np.bool_], stream: npt.NDArray[np.int64]
) -> tuple[int, int]:
    """The run extended by adjacent products: the backward pass has two on each side."""
    home = stream[order[first]]
    while first > 0 and product[order[first - 1]] and stream[order[first - 1]] == home:
        first -= 1
    while last + 1 < len(order) and product[order[last + 1]] and stream[order[last + 1]] == home:
        last += 1
    return first, last


def _product(
    order: npt.NDArray[np.int64],
    at: int,
    direction: int,
    product: npt.NDArray[np.bool_],
    light: npt.NDArray[np.bool_],
    stream: npt.NDArray[np.int64],
) -> int | None:
    """Position in `order` of the nearest batched product; None if something else comes first."""
    home = stream[order[at]]
    for distance in range(1, BETWEEN + 1):
        position = at + direction * distance
        if not 0 <= position < len(order) or stream[order[position]] != home:
            return None
        row = order[position]
        if product[row]:
            return int(position)
        if not light[row]:
            return None
    return None


class MathAttention(Struct, frozen=True):
    """scaled_dot_product_attention that fell back to its math backend. `calls` are its slices inside the window."""

    calls: npt.NDArray[np.int64]
    mask: npt.NDArray[np.bool_]  # of the device's work, including the backward
    product_ns: int
    other_ns: int


def find_math_attention(gpu: GpuWork, regions: Regions, unfused: UnfusedAttention) -> MathAttention:
    """The forward is what the operator launched. The backward cannot be recognized by itself: it is the rest of the
    unfused attention, if the operator launched most of the forward part.
    """
    math = regions.named(lambda name: name == MATH_SDPA, OP)
    slices = regions.slices
    calls = np.flatnonzero(math & gpu.launch_window.contains(slices.start))
    mask = regions.work_under(math) & gpu.is_kernel
    launched = regions.links.launch >= 0  # not launched in an earlier step, whose operators are missing
    forward = unfused.mask & launched & ~regions.work_under(regions.backward)
    if (forward & mask).sum() >= MOST * max(1, forward.sum()):
        mask = mask | unfused.mask
    inside = mask & gpu.is_inside
    product_ns = int(gpu.step_ns[inside & gpu.kind.among("gemm")].sum())
    return MathAttention(calls, inside, product_ns, int(gpu.step_ns[inside].sum()) - product_ns)
