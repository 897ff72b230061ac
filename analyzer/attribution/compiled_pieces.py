"""The pieces of compiled code that the steps run, and the host time of those that graph breaks add.

Dynamo compiles the rest of a function after a graph break as a frame of its own. Each call of one looks up its compiled
code again, and enters it through AOTAutograd's wrapper.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.tables.compilation import Compilation, GraphBreak
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP, PYTHON
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import torch_compile
from traceopt.analyzer.vocabulary.python_frames import resumed_at
from traceopt.analyzer.vocabulary.torch_compile import BreakText

NO_REASON = BreakText("the reason was not recorded; traceopt run records it")


class CompiledPieces(Struct, frozen=True):
    """`frames` are those whose compiled code runs in the steps. `per_step` counts calls of compiled code per step,
    `resumed_per_step` only calls of code after a graph break. `entries` are the slices that enter such code.
    """

    frames: frozenset[str]
    per_step: float
    resumed_per_step: float
    entries: I8


def find_compiled_pieces(regions: Regions, steps: Steps, compilation: Compilation | None) -> CompiledPieces:
    """Without `compilation`, pieces follow a graph break if they run in a function that Dynamo made for that."""
    slices = regions.slices
    pieces = np.flatnonzero(regions.named(lambda name: torch_compile.compiled_region(name) is not None, ANNOTATION, OP))
    pieces = pieces[steps.host_window.contains(slices.start[pieces])]
    frames = [frame[0] for code in slices.name[pieces].tolist() if (frame := _region(regions, code)) is not None]
    if compilation is None:
        resumed = pieces[slices.ancestor(pieces, regions.named(_is_resumed, PYTHON)) >= 0]
    else:
        resumed = pieces[np.array([frame in compilation.resumed_frames for frame in frames], bool)]
    return CompiledPieces(
        frozenset(frames),
        len(pieces) / max(1, steps.count),
        len(resumed) / max(1, steps.count),
        _entries(regions, resumed),
    )


def breaks_in_steps(compilation: Compilation, frames: frozenset[str]) -> tuple[GraphBreak, ...]:
    """The graph breaks in code that the steps run; all of them if the trace does not name compiled code."""
    return tuple(one for one in compilation.breaks if not frames or _runs(one, compilation, frames))


def breaks_by_frames(regions: Regions, steps: Steps) -> tuple[GraphBreak, ...]:
    """The graph breaks after which the steps resume functions, most frequent first. Their reasons are unknown."""
    slices, names = regions.slices, regions.trace.names
    rows = np.flatnonzero(regions.named(_is_resumed, PYTHON))
    rows = rows[steps.host_window.contains(slices.start[rows])]
    found = Counter(resumed_at(names[code]) for code in slices.name[rows].tolist())
    return tuple(GraphBreak(NO_REASON, site, count) for site, count in found.most_common())


def _is_resumed(name: str) -> bool:
    return resumed_at(name) is not None


def _runs(one: GraphBreak, compilation: Compilation, frames: frozenset[str]) -> bool:
    """A break of unknown code may run."""
    known = frozenset(one.frames) | compilation.frames_of(one.site)
    return not known or bool(known & frames)


def _region(regions: Regions, code: int) -> tuple[str, int] | None:
    return torch_compile.compiled_region(regions.trace.names[code])


def _entries(regions: Regions, pieces: I8) -> I8:
    """The lookup just before each piece, and the wrappers directly inside it."""
    if not len(pieces):
        return np.empty(0, np.int64)
    slices = regions.slices
    lookups = np.flatnonzero(regions.named(torch_compile.is_compiled_lookup, ANNOTATION, OP))
    before = np.searchsorted(lookups, pieces) - 1  # slices are sorted by thread and start
    found = lookups[np.maximum(before, 0)] if len(lookups) else np.empty(0, np.int64)
    own = (before >= 0) & (slices.thread[found] == slices.thread[pieces]) if len(lookups) else np.zeros(0, bool)
    wrappers = np.flatnonzero(regions.named(torch_compile.is_compiled_entry, ANNOTATION, OP))
    inside = np.isin(slices.parent[wrappers], pieces)
    return distinct_values(np.concatenate((found[own], wrappers[inside]))).astype(np.int64)
