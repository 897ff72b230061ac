"""Operators that only compute values which the host reads at once, such as statistics for a log."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.autograd.nodes import forward_operators, is_heavy
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_sites import CallSites
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps

READS = frozenset(("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal"))


def operators_for_host_reads(regions: Regions, steps: Steps, sites: CallSites) -> I8:
    """The outermost operators of the training thread on lines that read a value, if nothing on the line runs a layer or
    needs a gradient. Slices in order of time, without the reads, and without those of DataLoaders and data sets.
    """
    slices, operators = regions.slices, forward_operators(regions, steps)
    outer = operators.rows
    runs_layer = slices.encloses(regions.named(is_heavy, OP))[outer]
    reads = regions.named(READS.__contains__, OP)[outer]
    site = sites.of(outer)
    other = np.unique(site[runs_layer | (operators.has_node & ~reads)])
    only_read = (site >= 0) & np.isin(site, site[reads]) & ~np.isin(site, other)
    elsewhere = regions.optimizer | regions.data_code
    inside = steps.host_window.contains(slices.start[outer]) & (slices.ancestor(outer, elsewhere) < 0)
    return outer[only_read & ~reads & inside]
