"""Prices backward nodes that a fix removes: their kernels and launches, or their time on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import Change, RemoveHost, RemoveLaunches
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.rules.savings.price import Price
from traceopt.rules.savings.pricing import area_of, priced, scaled, shorter
from traceopt.rules.savings.starvation import host_bounds, launched_ns

Shares = tuple[float, float, float]  # low, expected, high


def node_ns(facts: Facts, nodes: I8) -> I8:
    """The time of each node: of the device's work that it launches, or its own in a CPU-only run. Shape (nodes,)."""
    if facts.has_gpu:
        return facts.regions.work_ns(nodes)
    return facts.slices.end[nodes] - facts.slices.start[nodes]


def held_ns(facts: Facts, rows: I8) -> I8:
    """For how long each row keeps the device busy or waiting; its own time in a CPU-only run. Shape (rows,)."""
    if not facts.has_gpu:
        return node_ns(facts, rows)
    waits: I8 = facts.stalled_within(facts.slices.start[rows], facts.slices.end[rows])
    return node_ns(facts, rows) + waits


def nodes_per_step_ns(facts: Facts, nodes: I8) -> float:
    return float(node_ns(facts, nodes).sum()) / facts.steps.count


def without_nodes(
    facts: Facts,
    nodes: I8,
    low: float,
    expected: float,
    basis: str,
    partly: tuple[I8, Shares] | None = None,
    *,
    high: float = 1.0,
) -> Price:
    """`low`, `expected`, `high`: the share of the nodes' time that the fix removes. `partly`: the same for others."""
    parts = [(nodes, (low, expected, high)), *([partly] if partly is not None else [])]
    bounds = np.zeros(3)
    removed: tuple[list[Change], ...] = ([], [], [])
    for rows, shares in parts:
        area = area_of(facts, rows)
        launched = facts.regions.work_under(facts.slices.mask(rows))
        gpu_ns = nodes_per_step_ns(facts, rows) if facts.has_gpu else 0.0
        bounds += np.multiply(shares, host_bounds(facts, area, 1.0, (gpu_ns, gpu_ns)))
        for changes, share in zip(removed, shares, strict=True):
            changes += [RemoveHost(area, share), *(scaled(facts, launched, 1 - share) if facts.has_gpu else [])]
    least, usual, most = bounds.tolist()
    return priced(facts, (least, usual, most), removed[1], basis, low=removed[0], high=removed[2])


def without_calls_of(facts: Facts, rows: I8, shares: Shares, basis: str) -> Price:
    """Without a share of these calls, with all that they launch."""
    launched = _work_of(facts, rows)
    gpu_ns = nodes_per_step_ns(facts, rows)
    bounds = np.multiply(shares, host_bounds(facts, area_of(facts, rows), 1.0, (gpu_ns, gpu_ns)))
    low, expected, high = ([RemoveLaunches(_evenly(launched, share))] for share in shares)
    return priced(facts, tuple(bounds.tolist()), expected, basis, low=low, high=high)


def _evenly(work: Mask, share: float) -> Mask:
    """A share of the masked work, spread evenly over it."""
    chosen: Mask = work.copy()
    chosen[work] = np.diff(np.floor(share * np.arange(np.count_nonzero(work) + 1))) > 0
    return chosen


def products_ns(facts: Facts, products: I8) -> float:
    """Per step: what operators such as matmuls take, on the device or in a CPU-only run."""
    if facts.has_gpu:
        return launched_ns(facts, _work_of(facts, products))
    return facts.steps.mean_ns(area_of(facts, products))


def without_part_of(
    facts: Facts, products: I8, shares: Shares, basis: str, at_best: tuple[I8, float] | None = None
) -> Price:
    """Without a share of the time of such products, as of those for the gradients of weights. `at_best`: other rows,
    such as whole backward passes, and the share of their time that goes at best.
    """
    rows = (products, products, products if at_best is None else at_best[0])
    parts = (*shares[:2], shares[2] if at_best is None else at_best[1])
    low_ns, usual_ns, most_ns = (share * products_ns(facts, mine) for mine, share in zip(rows, parts, strict=True))
    changes: list[Sequence[Change]] = []
    for mine, share, ns in zip(rows, parts, (low_ns, usual_ns, most_ns), strict=True):
        if facts.has_gpu:
            changes.append(shorter(facts, _work_of(facts, mine), ns))
        else:
            changes.append([RemoveHost(area_of(facts, mine), share)])
    low, expected, high = changes
    return priced(facts, (low_ns, usual_ns, most_ns), expected, basis, low=low, high=high)


def _work_of(facts: Facts, rows: I8) -> Mask:
    """The device's work."""
    return facts.regions.work_under(facts.slices.mask(rows))
