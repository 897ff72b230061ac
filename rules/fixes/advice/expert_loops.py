"""A mixture of experts that runs its experts one after the other."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.vocabulary import op_names
from traceopt.result.finding import Fix

FEWEST = 8  # experts
PART = 0.25  # of the wait for launches: the backward pass and other layers wait as well
GROUPED = (
    "Multiply all experts in one grouped matmul instead of a loop",
    Fix(
        "The layer finds the tokens of each expert and multiplies them, expert by expert. Sort the tokens by expert "
        "once, and multiply all of them in one call (torch.nn.functional.grouped_mm, PyTorch 2.9; megablocks). "
        "Transformers 5 does so with experts_implementation='grouped_mm'."
    ),
)


def loops_over_experts(facts: Facts) -> bool:
    """Whether functions that find the tokens of one expert after the other (nonzero, then matmuls) hold a good part of
    the wait for launches.
    """
    slices, regions = facts.slices, facts.regions
    picks = np.flatnonzero(regions.named(lambda name: name == op_names.NONZERO, OP))
    frames = slices.ancestor(picks, facts.call_sites.code_frames)
    calls, rounds = np.unique(frames[frames >= 0], return_counts=True)
    calls, rounds = calls[rounds >= FEWEST], rounds[rounds >= FEWEST]
    if not len(calls):
        return False
    products = np.sort(slices.start[regions.named(op_names.PRODUCT_CALLS.__contains__, OP)])
    inside = np.searchsorted(products, slices.end[calls]) - np.searchsorted(products, slices.start[calls])
    loops = calls[inside >= rounds]
    waited_ns = int(facts.stalled_within(slices.start[loops], slices.end[loops]).sum())
    return waited_ns > PART * facts.gaps.starved.total
