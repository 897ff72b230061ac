"""Operators of backward passes that add up the gradients of rows which were picked by index."""

from __future__ import annotations

from functools import lru_cache
from math import prod

import msgspec
import numpy as np

from traceopt.analyzer.arrays.columns import Columns
from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.tables.json_values import listed
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_sites import CallSites
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.kernels.kernel_names import is_index_accumulation

UNKNOWN_DIM = -1
_WIDE = ("float", "double")  # types of the profiler: numbers that devices add atomically at full rate


class RowGradients(Columns, frozen=True):
    """The backward passes of `x[indices]` and of embeddings in the window. Arrays have shape (len,); slices are in
    order.
    """

    rows: I8  # slices of the operators that add the gradients up
    forward: I8  # slices of the operators that picked the rows; -1: unknown
    dim: I8  # the dimension from which one tensor of indices picks; UNKNOWN_DIM: several, or it is unknown which
    wide: Mask  # the gradients have 32 or 64 bits
    embedding: Mask  # an embedding picked the rows
    table_rows: I8  # from so many rows it was picked; 0: unknown, as are the two that follow
    row_size: I8  # elements of a row
    picked_rows: I8  # so many were picked, some of them several times

    @property
    def picks(self) -> I8:
        """The known operators that picked the rows, each once: slices."""
        return distinct_values(self.forward[self.forward >= 0])

    @property
    def repeats(self) -> Mask:
        """At least as many rows are picked as there are, so that filling the gradient with zeros is no cost."""
        return (self.table_rows > 0) & (self.picked_rows >= self.table_rows)

    @property
    def usual_dim(self) -> int:
        """The dimension from which most of them pick; 0 if none is known."""
        known = self.dim[self.dim != UNKNOWN_DIM]
        return int(np.bincount(known).argmax()) if len(known) else 0


def find_row_gradients(regions: Regions, steps: Steps, sites: CallSites) -> RowGradients:
    """Operators below the backward node of indexing, others whose kernels add at sorted indices, and the dense
    gradients of embeddings.
    """
    slices, ops, texts = regions.slices, regions.trace.ops, regions.trace.texts
    embedding = regions.named(op_names.EMBEDDING_BACKWARD.__eq__, OP)
    puts = regions.named(op_names.INDEXING_BACKWARD.__contains__, OP)
    rows = slices.outermost(puts | embedding)
    rows = rows[steps.host_window.contains(slices.start[rows])].astype(np.int64)
    node = regions.named(op_names.is_index_tensor_backward, OP)
    rows = rows[embedding[rows] | (slices.ancestor(rows, node) >= 0) | _accumulates(regions, rows)]
    picks = regions.named(op_names.ROW_PICKS.__contains__, OP)
    forward = sites.forward_of(rows).astype(np.int64)
    unlinked = np.flatnonzero((forward < 0) | ~picks[forward])
    forward[unlinked] = _of_same_sizes(regions, rows[unlinked], picks, sites)
    of_op = slices.row[rows]
    dims = [_text(texts, code) for code in ops.dims[of_op].tolist()]
    types = [_text(texts, code) for code in ops.types[of_op].tolist()]
    values = [_text(texts, code) for code in ops.concrete[of_op].tolist()]
    plain = np.array([_is_plain_embedding(text) for text in values], bool)
    sizes = [_sizes(*texts) for texts in zip(dims, values, strict=True)]
    dim = np.array([_indexed_dim(text) for text in dims], np.int64)
    return RowGradients(
        rows,
        forward,
        np.where(embedding[rows], np.where(plain, 0, UNKNOWN_DIM), dim),
        np.array([(listed(text) or [""])[0] in _WIDE for text in types], bool),
        embedding[rows],
        *np.array(sizes, np.int64).reshape(-1, 3).T,
    )


def _text(texts: list[str], code: int) -> str:
    return texts[code] if code >= 0 else ""


def _accumulates(regions: Regions, rows: I8) -> Mask:
    """Which of these slices launch a kernel that adds at sorted indices. Shape (len(rows),)."""
    adds = np.array([is_index_accumulation(name) for name in regions.trace.names] or [False])[regions.gpu.work.name]
    owner = regions.slices.ancestor(regions.links.launch_slice[adds], regions.slices.mask(rows))
    return np.isin(rows, owner)


def _of_same_sizes(regions: Regions, rows: I8, picks: Mask, sites: CallSites) -> I8:
    """The last operator before each row that picked from a tensor of the same size by indices of the same size; -1:
    none, or several lines do. For files that do not link backward operators to those of the forward pass.
    """
    slices, ops, texts = regions.slices, regions.trace.ops, regions.trace.texts
    forward = np.flatnonzero(picks)
    forward = forward[np.argsort(slices.start[forward], kind="stable")]
    dims = ops.dims[slices.row[np.append(forward, rows)]]
    sizes = {code: _operand_sizes(texts[code]) for code in distinct_values(dims[dims >= 0]).tolist()}
    number = {size: index for index, size in enumerate(dict.fromkeys(sizes.values()))}
    key = np.array([-1 if sizes.get(code) is None else number[sizes[code]] for code in dims.tolist()], np.int64)
    of_forward, of_row = key[: len(forward)], key[len(forward) :]
    found = np.full(len(rows), -1, np.int64)
    for value in distinct_values(of_row[of_row >= 0]):
        same, mine = forward[of_forward == value], np.flatnonzero(of_row == value)
        before = np.searchsorted(slices.start[same], slices.start[rows[mine]]) - 1
        if len(same) and len(distinct_values(sites.of(same))) == 1:
            found[mine] = np.where(before >= 0, same[before], -1)
    return found


@lru_cache(maxsize=1024)
def _is_plain_embedding(text: str) -> bool:
    """Whether an embedding has no row for padding, whose gradient stays zero, and does not scale gradients."""
    values = listed(text) or []
    return values[3:5] == ["-1", "False"]


@lru_cache(maxsize=1024)
def _sizes(dims: str, values: str) -> tuple[int, int, int]:
    """Rows of the table, elements of each, and how many rows are picked; zeros if unknown."""
    sizes, arguments = listed(dims) or [], listed(values) or []
    if len(sizes) > 1 and not any(sizes[2:]) and len(arguments) == 5:  # an embedding: its gradient, the number of rows
        picked, rows = _shape(sizes[0]), str(arguments[2])
        return (int(rows), picked[-1], prod(picked[:-1])) if picked and rows.isdecimal() else (0, 0, 0)
    (whole, picked), dim = _whole_and_picked(dims), _indexed_dim(dims)
    if not whole or picked is None or dim == UNKNOWN_DIM or not all(whole):
        return 0, 0, 0
    size = prod(whole) // whole[dim]
    return whole[dim], size, prod(picked) // size


def _whole_and_picked(dims: str) -> tuple[list[int] | None, list[int] | None]:
    """The sizes of the indexed tensor and of what was picked from it."""
    sizes = listed(dims) or []
    return (_shape(sizes[0]), _shape(sizes[2])) if len(sizes) > 2 else (None, None)


def _shape(value: object) -> list[int] | None:
    """A recorded size, if it is one."""
    return value if isinstance(value, list) and all(type(size) is int for size in value) else None


def _operand_sizes(text: str) -> bytes | None:
    """The sizes of the indexed tensor and of the indices."""
    sizes = listed(text)
    return msgspec.json.encode(sizes[:2]) if sizes and len(sizes) > 1 else None


@lru_cache(maxsize=1024)
def _indexed_dim(text: str) -> int:
    """The dimension from which one tensor of indices picks, by the sizes of the tensor and of what was picked."""
    whole, picked = _whole_and_picked(text)
    if not whole or picked is None or _tensors_of_indices(text) > 1:
        return UNKNOWN_DIM
    if len(picked) >= len(whole) and picked[len(picked) - len(whole) + 1 :] == whole[1:]:
        return 0
    if len(picked) != len(whole):
        return UNKNOWN_DIM
    other = [dim for dim, (before, after) in enumerate(zip(whole, picked, strict=True)) if before != after]
    return other[0] if len(other) == 1 else UNKNOWN_DIM


def _tensors_of_indices(text: str) -> int:
    """How many tensors index, as far as their sizes are recorded: PyTorch writes none for a list with gaps."""
    indices = (listed(text) or [])[1]
    return sum(isinstance(size, list) and len(size) > 0 for size in indices) if isinstance(indices, list) else 0
