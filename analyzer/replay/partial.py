"""A part of a change: a fix that reaches only so far."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from traceopt.analyzer.replay.changes import Change, MergeKernels, RemoveHost, RemoveLaunches, ScaleWork


def partial(changes: Sequence[Change], share: float) -> list[Change]:
    """The changes with this share (0..1) of their effect. A wait is dropped or not, so these stay as they are."""
    return [_part(change, share) for change in changes]


def _part(change: Change, share: float) -> Change:
    if isinstance(change, RemoveHost):
        return replace(change, share=share * change.share)
    if isinstance(change, ScaleWork):
        return replace(change, factor=1 - share * (1 - np.asarray(change.factor)))
    if isinstance(change, MergeKernels):
        factor = 1 - share * (1 - np.asarray(change.factor))
        return replace(change, factor=factor, dispatch_share=share * change.dispatch_share)
    if isinstance(change, RemoveLaunches):
        return replace(change, dispatch_share=share * change.dispatch_share)
    return change
