"""Operators of backward passes that add gradients to the pixels from which a sample was interpolated."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.arrays.columns import Columns
from traceopt.analyzer.tables.json_values import listed
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names

_SIXTEEN_BITS = ("c10::Half", "c10::BFloat16")


class SamplingGradients(Columns, frozen=True):
    """The backward passes of grid_sample and of interpolation in the window. Arrays have shape (len,)."""

    rows: I8  # slices, in order
    narrow: Mask  # the gradients have 16 bits
    of_picture: Mask  # where the picture has a gradient, and not the grid alone


def find_sampling_gradients(regions: Regions, steps: Steps) -> SamplingGradients:
    slices, ops, texts = regions.slices, regions.trace.ops, regions.trace.texts
    rows = np.flatnonzero(regions.named(op_names.SAMPLING_BACKWARD.__contains__, OP))
    rows = rows[steps.host_window.contains(slices.start[rows])].astype(np.int64)

    def read(codes: list[int]) -> list[list[object]]:
        return [(listed(texts[code]) or [""]) if code >= 0 else [""] for code in codes]

    types, values = read(ops.types[slices.row[rows]].tolist()), read(ops.concrete[slices.row[rows]].tolist())
    return SamplingGradients(
        rows,
        np.array([one[0] in _SIXTEEN_BITS for one in types], bool),
        np.array([str(value[-1]).startswith("[True") for value in values], bool),
    )
