"""Experts on several ranks: how many tokens this rank gets for its own ones, and how long it computes on them.

An all-to-all takes the tokens to the ranks of their experts (dispatch), and the next one takes the results back
(combine). A backward pass does the same with gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import Intervals
from traceopt.analyzer.communication.collectives import CollectiveCalls
from traceopt.analyzer.tables.json_values import listed
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP, PYTHON
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.python_frames import MODULE_FRAME

ALL_TO_ALL = "all_to_all"
_RECEIVED, _SENT = 3, 4  # of the arguments of c10d::alltoall_base_: the split sizes


class Splits(Struct, frozen=True):
    """How many rows a rank sends to each rank, and receives from each."""

    sent: tuple[int, ...]
    received: tuple[int, ...]

    @property
    def is_uneven(self) -> bool:
        return len({*self.sent, *self.received}) > 1


class ExpertLoad(Struct, frozen=True):
    """The experts of one rank, by pass of a layer: first those of the forward, then those of the backward. Arrays have
    shape (passes,), of the mean step.
    """

    tokens: I8  # that the rank receives
    compute_ns: I8  # between dispatch and combine
    exchange_ns: I8  # exposed time of both
    layers: list[str]  # the module that calls each; "": not recorded, as in a backward


def find_expert_load(
    regions: Regions, steps: Steps, calls: CollectiveCalls, begin: I8, end: I8, compute: Intervals
) -> ExpertLoad | None:
    """From the all-to-alls and when each ran. None unless the sizes of their parts are recorded and differ, and all
    steps have as many passes.

    Sharded embeddings also get back gradients for what they sent, but in the backward pass: both calls of a pass are in
    the same one.
    """
    exchanges = regions.named(op_names.is_split_exchange, OP)
    around = np.where(calls.launch >= 0, regions.slices.ancestor(calls.launch, exchanges), -1)
    splits = [_splits(regions, row) for row in around.tolist()]
    first = _dispatches(splits, (regions.slices.ancestor(calls.launch, regions.backward) >= 0).tolist())
    step = steps.step_of(begin[first])
    first = first[step >= 0]
    count = np.bincount(step[step >= 0], minlength=steps.count)
    if not len(first) or (count != count[0]).any() or not any(split.is_uneven for split in splits if split is not None):
        return None
    columns = (
        np.array([sum(split.received) for split in map(splits.__getitem__, first.tolist()) if split is not None]),
        compute.within(end[first], begin[first + 1]),
        calls.exposed[first] + calls.exposed[first + 1],
    )
    tokens, compute_ns, exchange_ns = (
        column.reshape(steps.count, -1).mean(axis=0).astype(np.int64) for column in columns
    )
    return ExpertLoad(tokens, compute_ns, exchange_ns, _layers(regions, calls, first[: count[0]]))


def _layers(regions: Regions, calls: CollectiveCalls, first: I8) -> list[str]:
    """The innermost module around both calls of each pass. A loop, because modules are nested; passes are few."""
    slices, names = regions.slices, regions.trace.names
    modules = regions.named(lambda name: name.startswith(MODULE_FRAME), PYTHON)
    found = []
    for begin, end in zip(calls.launch[first].tolist(), calls.launch[first + 1].tolist(), strict=True):
        around = begin
        while around >= 0 and not (modules[around] and slices.end[around] >= slices.start[end]):
            around = int(slices.parent[around])
        found.append(names[slices.name[around]].removeprefix(MODULE_FRAME) if around >= 0 else "")
    return found


def _splits(regions: Regions, row: int) -> Splits | None:
    """Of the call of one all-to-all; None if they are not recorded, or all are equal by default."""
    trace = regions.trace
    concrete = int(trace.ops.concrete[regions.slices.row[row]]) if row >= 0 else -1
    values = listed(trace.texts[concrete]) if concrete >= 0 else None
    if values is None or len(values) <= _SENT:
        return None
    sent, received = (_sizes(values[at]) for at in (_SENT, _RECEIVED))
    return Splits(sent, received) if sent and received else None


def _sizes(text: object) -> tuple[int, ...]:
    sizes = listed(text) if isinstance(text, str) else None
    return tuple(size for size in sizes or [] if isinstance(size, int))


def _dispatches(splits: Sequence[Splits | None], in_backward: Sequence[bool]) -> I8:
    """The calls whose next one sends back what they brought. A loop, because each call is in one pair; they are few."""
    found, at = [], 0
    while at + 1 < len(splits):
        mine, after = splits[at], splits[at + 1]
        returned = mine is not None and after is not None and mine == Splits(after.received, after.sent)
        pair = returned and in_backward[at] == in_backward[at + 1]
        if pair:
            found.append(at)
        at += 2 if pair else 1
    return np.array(found, np.int64)
