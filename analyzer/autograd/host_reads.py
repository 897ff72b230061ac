"""Operators that only compute values which the host reads at once, such as statistics for a log."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.autograd.nodes import ForwardOperators, is_heavy
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_sites import CallSites
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary.op_names import CONDITION

READS = frozenset(("aten::item", "aten::_local_scalar_dense"))
DECISIONS = frozenset((CONDITION, "aten::equal"))
COPIES = frozenset(("aten::to", "aten::_to_copy", "aten::copy_"))


def operators_for_host_reads(regions: Regions, steps: Steps, sites: CallSites, operators: ForwardOperators) -> I8:
    """The outermost operators of the training thread on lines that read a value, if nothing on the line runs a layer,
    needs a gradient, changes a tensor or decides what runs next. Slices in order of time, without the reads and copies,
    and without those of DataLoaders and data sets. Lines are known where calls were recorded: a function that reads a
    value does other work.
    """
    slices, outer = regions.slices, operators.rows
    runs_layer = slices.encloses(regions.named(is_heavy, OP))[outer]
    reads = regions.named(READS.__contains__, OP)[outer]
    acts = regions.named(_has_effects, OP)[outer] | regions.named(DECISIONS.__contains__, OP)[outer]
    site = np.where(sites.at_known_lines(outer), sites.of(outer), -1)
    other = distinct_values(site[runs_layer | acts | (operators.has_node & ~reads)])
    only_read = (site >= 0) & np.isin(site, site[reads]) & ~np.isin(site, other)
    elsewhere = regions.updates[outer] | (slices.ancestor(outer, regions.data_code) >= 0)
    inside = steps.host_window.contains(slices.start[outer]) & ~elsewhere
    return outer[only_read & ~reads & ~regions.named(COPIES.__contains__, OP)[outer] & inside]


def _has_effects(name: str) -> bool:
    """Whether an operator changes a tensor in place, or is not PyTorch's own arithmetic: a collective, a custom one."""
    return name.endswith("_") or not name.startswith("aten::")
