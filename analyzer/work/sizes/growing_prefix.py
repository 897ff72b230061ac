"""Rounds of a generation that compute all tokens so far again: the input of each layer grows by one token."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from traceopt.analyzer.tables.schema import F8, I8
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.work.sizes.sized_calls import Shape, SizedCalls

LINEAR = "aten::linear"
MIN_ROUNDS = 8
MOST = 0.8  # of the rounds: the others begin a new sequence


class GrowingPrefix(Struct, frozen=True):
    """Shape (rounds,), in order: the first call of a layer in each round, that in the next round, which are slices, and
    the number of tokens. The last round of a sequence is left out, because nothing shows where it ends.
    """

    first: I8
    next: I8
    tokens: I8

    def took_ns(self, regions: Regions, *, on_gpu: bool) -> F8:
        """What each round takes: of the device's work that it launches, or of the host."""
        slices, launch = regions.slices, regions.links.launch_slice
        start, end = slices.start[self.first], slices.start[self.next]
        if not on_gpu:
            return (end - start).astype(np.float64)
        launched = np.where(launch >= 0, slices.start[np.maximum(launch, 0)], -1)
        of_round = np.searchsorted(start, launched, side="right") - 1
        mine = (of_round >= 0) & (launched < end[np.maximum(of_round, 0)])
        return np.bincount(of_round[mine], regions.gpu.work.duration[mine], len(start)).astype(np.float64)


def find_growing_prefix(calls: SizedCalls) -> GrowingPrefix | None:
    """By the layers, of the same weights' shape, that show most rounds. None if no input grows by one token."""
    layers = defaultdict[tuple[Shape, Shape], dict[int, int]](dict)  # the tokens of each group of calls
    for group, sizes in enumerate(calls.sizes):
        if sizes.name == LINEAR and len(sizes.shapes) > 1 and len(sizes.shapes[0]) > 1:
            inputs, weight = sizes.shapes[:2]
            layers[inputs[:-2], weight][group] = inputs[-2]
    found = [_rounds(calls, tokens) for tokens in layers.values() if len(tokens) > MIN_ROUNDS]
    return max(filter(None, found), key=lambda one: len(one.first), default=None)


def _rounds(calls: SizedCalls, tokens_of: Mapping[int, int]) -> GrowingPrefix | None:
    mine = np.isin(calls.group, list(tokens_of))
    rows, tokens = calls.rows[mine], np.array([tokens_of[group] for group in calls.group[mine].tolist()], np.int64)
    begins = np.append(True, np.diff(tokens) != 0)  # a round runs several such layers
    rows, tokens = rows[begins], tokens[begins]
    grows = np.diff(tokens) == 1
    if np.count_nonzero(grows) < MIN_ROUNDS or grows.mean() < MOST:
        return None
    return GrowingPrefix(rows[:-1][grows], rows[1:][grows], tokens[:-1][grows])
