"""Calls of library functions that are slow in loops, on the training thread."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import PYTHON
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import library_frames

# By what the functions do.
_KINDS: dict[str, Callable[[str], bool]] = {
    "pandas_rows": library_frames.is_pandas_row_frame,
    "sample": library_frames.is_sample_frame,
    "module_cast": library_frames.is_module_cast_frame,
}
SLOW_DRAW_NS = 5_000  # for an item of a sample: a list takes about 1 us, in a large deque it is a long walk to the item


def find_slow_functions(regions: Regions, steps: Steps) -> dict[str, I8]:
    """By what they do; without the kinds that are not called. Samples count if they take long for each item."""
    found = {kind: regions.calls(regions.named(test, PYTHON), steps) for kind, test in _KINDS.items()}
    found["pandas_rows"] = regions.calls(_with_their_use(regions, found["pandas_rows"]), steps)
    found["construction"] = regions.calls(_constructors(regions), steps)
    found["sample"] = _of_slow_populations(regions, found["sample"])
    return {kind: rows for kind, rows in found.items() if len(rows)}


def _with_their_use(regions: Regions, reads: I8) -> Mask:
    """The reads of rows, and what the same functions then do with rows, such as `to_numpy`."""
    slices = regions.slices
    uses = regions.named(library_frames.is_pandas_series_frame, PYTHON)
    return slices.mask(reads) | (uses & np.isin(slices.parent, slices.parent[reads]))


def _constructors(regions: Regions) -> Mask:
    """The constructors of modules: those that call nn.Module's own one, at once or through that of a base class."""
    slices, constructor = regions.slices, regions.named(library_frames.is_constructor_frame, PYTHON)
    rows = np.flatnonzero(regions.named(library_frames.is_module_constructor_frame, PYTHON))
    found = slices.mask(rows)
    while len(rows):
        callers = slices.parent[rows]
        callers = callers[callers >= 0]
        rows = np.flatnonzero(slices.mask(callers) & constructor & ~found)
        found[rows] = True
    return found


def _of_slow_populations(regions: Regions, samples: I8) -> I8:
    slices = regions.slices
    draws = np.flatnonzero(regions.named(library_frames.is_sample_draw_frame, PYTHON))
    owner = slices.ancestor(draws, slices.mask(samples))
    count = np.bincount(np.searchsorted(samples, owner[owner >= 0]), minlength=len(samples))
    is_slow = (count > 0) & (slices.duration_of(samples) > SLOW_DRAW_NS * count)
    return samples[is_slow]
