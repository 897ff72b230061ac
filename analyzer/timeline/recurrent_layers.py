"""Calls of recurrent layers and cells."""

from __future__ import annotations

import msgspec
import numpy as np

from traceopt.analyzer.arrays.grouping import group_rows
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names

BATCH_FIRST = -1  # place among the arguments of a layer that gets a tensor


def cells(regions: Regions, steps: Steps) -> I8:
    """Calls of nn.LSTMCell and its like in the window, not those that a backward pass repeats. Slices, in order."""
    return _calls(regions, steps, op_names.RECURRENT_CELLS)


def single_sequences(regions: Regions, steps: Steps) -> I8:
    """Calls of nn.LSTM and its like with a batch of one sequence that has several time steps. Slices, in order."""
    ops = regions.trace.ops
    calls = _calls(regions, steps, op_names.RECURRENT_LAYERS)
    at = regions.slices.row[calls]
    first, kind = group_rows(ops.dims[at], ops.concrete[at])
    texts = regions.trace.texts
    single = [
        _is_single(*(texts[code] if code >= 0 else "" for code in codes))
        for codes in zip(ops.dims[at[first]].tolist(), ops.concrete[at[first]].tolist(), strict=True)
    ]
    return calls[np.array(single, bool)[kind]] if len(calls) else calls


def _calls(regions: Regions, steps: Steps, names: frozenset[str]) -> I8:
    slices = regions.slices
    rows = np.flatnonzero(regions.named(names.__contains__, OP))
    rows = rows[steps.window.contains(slices.start[rows]) & (slices.ancestor(rows, regions.backward) < 0)]
    return rows.astype(np.int64)


def _is_single(dims: str, concrete: str) -> bool:
    """From the shapes and the values of a layer's arguments; a layer that gets packed sequences has no batch_first."""
    try:
        sizes, values = msgspec.json.decode(dims), msgspec.json.decode(concrete)
        batch_first = {"True": True, "False": False}[values[BATCH_FIRST]]
        first, second, _ = map(int, sizes[0])
    except (msgspec.DecodeError, LookupError, TypeError, ValueError):
        return False
    batch, length = (first, second) if batch_first else (second, first)
    return bool(batch == 1 and length > 1)
