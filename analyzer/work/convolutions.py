"""Convolutions: which have a bias that the next batch norm cancels, whether their shapes repeat in every step,
and in which cuDNN searches for an algorithm.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.columns import Columns
from traceopt.analyzer.arrays.grouping import distinct_values, numbered
from traceopt.analyzer.tables.json_values import listed
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import OP, RUNTIME
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names, runtime_calls

MIN_CANDIDATES = 2  # algorithms that a search compares at least; each is run to warm up, and again to be timed


class Convolutions(Struct, frozen=True, dict=True):
    """The convolution operators of a trace with recorded shapes."""

    regions: Regions
    steps: Steps

    @cached_property
    def with_bias(self) -> I8:
        """The calls of a convolution with a bias: slices of conv1d, conv2d or conv3d."""
        trace, slices = self.regions.trace, self.regions.slices
        rows = np.flatnonzero(self.regions.named(op_names.CONVOLUTION_CALLS.__contains__, OP))
        dims = trace.ops.dims[slices.row[rows]]
        biased = {int(code): _has_bias(trace.texts[code]) for code in distinct_values(dims[dims >= 0])}
        return np.asarray(rows[np.array([biased.get(int(code), False) for code in dims], bool)])

    @cached_property
    def before_norm(self) -> Mask:
        """Which of `with_bias` a batch norm directly follows. Shape (len(with_bias),)."""
        slices = self.regions.slices
        following = slices.next_outermost(self.with_bias, slices.kind == OP)
        norm = self.regions.named(op_names.BATCH_NORMS.__contains__, OP)
        return np.asarray((following >= 0) & norm[following]) if len(following) else np.empty(0, bool)

    @cached_property
    def repeated_shapes(self) -> int:
        """How many different shapes there are, if every step has the same ones; 0 if they differ between steps or were
        not recorded.
        """
        slices, ops = self.regions.slices, self.regions.trace.ops
        rows = np.flatnonzero(self.regions.named(op_names.CONVOLUTION_OPS.__contains__, OP))
        step, dims = self.steps.host_step_of(slices.start[rows]), ops.dims[slices.row[rows]]
        inside = step >= 0
        step, dims = step[inside], dims[inside]
        if not len(dims) or (dims < 0).any():
            return 0
        kinds, kind = numbered(dims)
        of_step = np.zeros((self.steps.count, len(kinds)), np.int64)
        np.add.at(of_step, (step, kind), 1)
        return len(kinds) if (of_step == of_step[0]).all() else 0


class Searches(Columns, frozen=True):
    """The convolutions in which cuDNN runs several algorithms and waits for each, to choose the fastest: those of the
    recorded steps. Arrays have shape (len,).
    """

    rows: I8  # slices, in order
    step: I8  # of each, an index into the recorded steps

    @property
    def steps(self) -> int:
        """How many steps have some."""
        return len(distinct_values(self.step))

    def within(self, steps: I8) -> Searches:
        """Those of these steps."""
        return self.take(np.isin(self.step, steps))

    def trials(self, regions: Regions) -> Mask:
        """The GPU work that they launch, without the last kernel of each, which computes the result."""
        slices, gpu = regions.slices, regions.gpu
        owner = slices.ancestor(regions.links.launch_slice, slices.mask(self.rows))
        inside = np.flatnonzero((owner >= 0) & gpu.is_kernel)
        last = inside[len(inside) - 1 - np.unique(owner[inside][::-1], return_index=True)[1]]
        found: Mask = owner >= 0
        found[last] = False
        return found


def find_searches(regions: Regions, recorded_steps: Steps) -> Searches:
    slices = regions.slices
    rows = slices.outermost(regions.named(op_names.CONVOLUTION_OPS.__contains__, OP)).astype(np.int64)
    around = slices.mask(rows)
    waits = slices.ancestor(np.flatnonzero(regions.named(runtime_calls.is_event_wait, RUNTIME)), around)
    launched = slices.ancestor(regions.links.launch_slice[regions.gpu.is_kernel], around)
    rows = rows[(_times(rows, waits) >= MIN_CANDIDATES) & (_times(rows, launched) >= 2 * MIN_CANDIDATES)]
    step = recorded_steps.host_step_of(slices.start[rows])
    return Searches(rows[step >= 0], step[step >= 0])


def _times(rows: I8, owner: npt.NDArray[np.integer]) -> I8:
    """How often each row is an owner. Shape (len(rows),)."""
    return np.bincount(np.searchsorted(rows, owner[owner >= 0]), minlength=len(rows)).astype(np.int64)


def _has_bias(text: str) -> bool:
    """Whether recorded sizes of a convolution's inputs (JSON) have a one-dimensional third input."""
    dims = listed(text) or []
    return len(dims) > 2 and isinstance(dims[2], list) and len(dims[2]) == 1
