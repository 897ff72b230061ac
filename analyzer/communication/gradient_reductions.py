"""The reductions of gradients in backward passes, and how many backward passes there are per update."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.communication.collectives import CollectiveCalls
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.vocabulary import op_names

REDUCING = ("all_reduce", "reduce_scatter")


class GradientReductions(Struct, frozen=True, dict=True):
    """The reductions that backward passes launch, shape (len,), facts about the passes, shape (passes,), and the calls
    by which the host serves the reductions: it launches them, and copies gradients into buckets and back.
    """

    rows: I8  # as in CollectiveCalls
    launch: I8  # the slice that started each
    exposed: I8  # time not overlapped by compute, ns
    backward_pass: I8  # index of the pass that launched each
    pass_bytes: I8  # reduced in each pass; an unknown size counts as one byte
    update: I8  # number of optimizer steps that started before each pass
    calls: I8  # slices, shape (calls,)
    call_pass: I8  # index of the pass that each call belongs to
    passes_per_update: float  # optimizer steps with no backward pass between them are one update

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def _last(self) -> npt.NDArray[np.bool_]:
        """The last pass before each update."""
        update = self.update
        return np.append(update[1:] != update[:-1], True) if len(update) else np.empty(0, bool)

    @property
    def before_last_pass(self) -> bool:
        """Whether a pass before the last one of an update reduces gradients."""
        return bool((~self._last[self.backward_pass]).any())

    def repeated(self, same_bytes: float) -> npt.NDArray[np.bool_]:
        """The reductions of redundant passes. Shape (len,)."""
        return np.asarray(self._redundant(same_bytes)[self.backward_pass])

    def repeated_calls(self, same_bytes: float) -> I8:
        """The calls that serve the reductions of redundant passes."""
        return self.calls[self._redundant(same_bytes)[self.call_pass]]

    def _redundant(self, same_bytes: float) -> npt.NDArray[np.bool_]:
        """Passes before the last one of an update, if the last one reduces about as much again: the ratio of the bytes
        is at least `same_bytes`.
        """
        moved, last = self.pass_bytes, np.flatnonzero(self._last)
        of_last = moved[last][np.searchsorted(last, np.arange(len(moved)))]
        low, high = np.minimum(moved, of_last), np.maximum(moved, of_last)
        return np.asarray(~self._last & (low > 0) & (low >= same_bytes * high))


def find_gradient_reductions(collectives: Sequence[CollectiveCalls], regions: Regions) -> GradientReductions:
    """The reductions among the collectives that were launched inside a backward pass."""
    calls = [c for c in collectives if c.name in REDUCING]
    empty = np.empty(0, np.int64)
    rows, launch, exposed, size = (
        np.concatenate([empty, *(getattr(c, name) for c in calls)]) for name in ("rows", "launch", "exposed", "bytes")
    )
    start, passes = regions.slices.start, regions.backward_passes
    known = launch >= 0  # some of a trace without the host's calls
    rows, launch, exposed, size = rows[known], launch[known], exposed[known], size[known]
    at = start[launch]
    inside = passes.contains(at)
    rows, launch, exposed, size, at = (part[inside] for part in (rows, launch, exposed, size, at))
    number = np.searchsorted(passes.start, at, side="right") - 1
    updates = np.sort(start[regions.optimizer])
    copies = np.flatnonzero(regions.named(op_names.is_gradient_bucket_copy, OP))
    served = np.concatenate((launch, copies))
    call_pass = np.searchsorted(passes.start, start[served], side="right") - 1
    return GradientReductions(
        rows=rows,
        launch=launch,
        exposed=exposed,
        backward_pass=number,
        pass_bytes=np.bincount(number, weights=np.maximum(size, 1), minlength=len(passes)).astype(np.int64),
        update=np.searchsorted(updates, passes.start),
        calls=served[call_pass >= 0],
        call_pass=call_pass[call_pass >= 0],
        passes_per_update=len(passes) / max(1, len(distinct_values(np.searchsorted(passes.start, updates)))),
    )
