"""Linear algebra on small matrices: solvers and decompositions, call by call."""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.columns import Columns
from traceopt.analyzer.tables.json_values import listed
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names

MOST_COLUMNS = 512  # of a small matrix: it leaves most of a GPU idle


class LinearAlgebra(Columns, frozen=True):
    """The calls on small matrices in the window. Arrays have shape (len,)."""

    rows: I8  # slices, in order
    matrices: I8  # of each call
    launches: I8  # of kernels by each call
    batched: Mask  # the libraries of GPUs have kernels for a whole batch
    repeats: Mask  # the next call follows with nothing in between but copies, views and picked parts

    def only(self, rows: npt.NDArray[np.integer]) -> LinearAlgebra:
        """The calls among these slices."""
        return self.take(np.isin(self.rows, rows))


def linear_algebra_calls(regions: Regions, steps: Steps) -> I8:
    """The calls of solvers and decompositions in the window, on matrices of any size. Slices, in order."""
    rows = regions.slices.outermost(regions.named(_is_linear_algebra, OP))
    return rows[steps.host_window.contains(regions.slices.start[rows])].astype(np.int64)


def find_linear_algebra(regions: Regions, steps: Steps) -> LinearAlgebra:
    slices, ops, texts = regions.slices, regions.trace.ops, regions.trace.texts
    solvers = regions.named(op_names.SOLVERS.__contains__, OP)
    calls = solvers | regions.named(op_names.DECOMPOSITIONS.__contains__, OP)
    rows = slices.outermost(calls).astype(np.int64)
    rows = rows[steps.host_window.contains(slices.start[rows])]
    codes = ops.dims[slices.row[rows]].tolist()
    sizes = {code: _matrices(texts[code]) if code >= 0 else 0 for code in set(codes)}
    matrices = np.array([sizes[code] for code in codes], np.int64)
    rows, matrices = rows[matrices > 0], matrices[matrices > 0]
    owner = slices.ancestor(regions.links.launch_slice[regions.gpu.is_kernel], slices.mask(rows))
    launches = np.bincount(np.searchsorted(rows, owner[owner >= 0]), minlength=len(rows)).astype(np.int64)
    moves = regions.named(lambda name: name in op_names.MOVES or name in op_names.PICKS, OP)
    outer = slices.mask(slices.outermost(slices.kind == OP))
    following = slices.next_outermost(rows, outer & ~moves)
    return LinearAlgebra(rows, matrices, launches, solvers[rows], calls[following] & (following >= 0))


def _is_linear_algebra(name: str) -> bool:
    return name in op_names.SOLVERS or name in op_names.DECOMPOSITIONS


def _matrices(text: str) -> int:
    """The number of matrices in the first input, if they are small; 0 for others."""
    first = (listed(text) or [None])[0]
    if not isinstance(first, list) or len(first) < 2 or not all(type(size) is int and size > 0 for size in first):
        return 0
    return prod(first[:-2]) if max(first[-2:]) <= MOST_COLUMNS else 0
