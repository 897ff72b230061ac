"""How to make the items of a data set cheaper, if frames show what most of the loading is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.timeline.call_tree import PYTHON
from traceopt.analyzer.vocabulary import library_frames
from traceopt.result.words.message import percent
from traceopt.rules.evidence import SiteCost, by_site, lines_inside, name_of
from traceopt.rules.fixes.advice.loading.loader_plans import loader_rows

MOST = 0.5  # of the loading
# What items are converted with, by the beginnings of names, and what to do once instead.
_ONCE = {
    ("pandas/",): "Most of it is pandas, row by row: convert the columns to arrays or tensors once, before the loop.",
    ("<built-in method tensor of", "<built-in function array>", "<built-in function asarray>"): "Most of it converts "
    "lists or numbers, item by item: if they fit in memory, make one tensor of all items once, in the data set.",
}


def cheaper_items(facts: Facts, lines: Sequence[SiteCost], function: SiteCost | None, loading_ns: int) -> str:
    """A sentence if most of the loading is conversions of single items that can be made once for all of them, work on
    whole pictures that are made smaller afterwards, or the Python code of one function. `function`: that with most of
    the loading.
    """
    called = [name_of(facts, longest_of(facts, line)) for line in lines]
    for names, advice in _ONCE.items():
        spent_ns = sum(line.cost_ns for line, name in zip(lines, called, strict=True) if name.startswith(names))
        if lines and spent_ns >= MOST * loading_ns:
            return f" {advice}"
    return _smaller_first(facts, loading_ns) or _own_code(facts, function, loading_ns)


def longest_of(facts: Facts, site: SiteCost) -> int:
    """The longest slice of a call site."""
    rows = site.rows.astype(np.int64)
    return int(rows[facts.slices.duration_of(rows).argmax()])


def _own_code(facts: Facts, function: SiteCost | None, loading_ns: int) -> str:
    if function is None or function.location is None or not facts.call_sites.lines_recorded:
        return ""
    calls_ns = sum(line.cost_ns for line in lines_inside(facts, function.rows.astype(np.int64)))
    if function.cost_ns - calls_ns < MOST * loading_ns:
        return ""
    return (
        f" Most of it is the Python code of {function.location.function} itself, not what it calls: vectorize its "
        "loops, or keep its result for each item, if it is the same in each epoch."
    )


def _smaller_first(facts: Facts, loading_ns: int) -> str:
    """If filters and rotations of pictures take most of the loading, and a crop or resize follows in the same item."""
    slices, regions = facts.slices, facts.regions
    changes = regions.named(library_frames.is_picture_change, PYTHON)
    shrinks = regions.named(library_frames.is_picture_crop, PYTHON)
    loading = slices.nearest(slices.mask(loader_rows(facts))) >= 0
    calls = slices.outermost((changes | shrinks) & loading).astype(np.int64)
    if not len(calls):
        return ""
    item = slices.ancestor(calls, regions.named(library_frames.is_item_frame, PYTHON))
    crop = np.flatnonzero(shrinks[calls])
    following = np.searchsorted(crop, np.arange(len(calls)))  # the crop after each call, if there is one
    followed = changes[calls] & (item >= 0) & (following < len(crop))
    followed[followed] = item[crop[following[followed]]] == item[followed]
    spent_ns = int(slices.duration_of(calls[followed]).sum())
    if spent_ns < MOST * loading_ns:
        return ""
    crops = distinct_values(calls[crop[following[followed]]])
    place = by_site(facts, crops)[0].location
    at = f" ({place})" if place is not None else ""
    return (
        f" {percent(spent_ns / loading_ns)} of the loading changes whole pictures (rotation, filters, colors) that are "
        f"cropped or resized afterwards{at}: if that makes them smaller, do it first."
    )
