"""Prices backward nodes that a fix removes: their kernels and launches, or their time on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import Change, RemoveHost, RemoveLaunches
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.vocabulary.kernels.kernel_names import is_gradient
from traceopt.analyzer.vocabulary.op_names import is_convolution, is_gradient_accumulation
from traceopt.result.finding import Evidence
from traceopt.rules.evidence import by_calling_site, site_evidence
from traceopt.rules.savings.price import Price
from traceopt.rules.savings.pricing import area_of, priced, scaled, shorter
from traceopt.rules.savings.starvation import host_bounds, launched_ns

Shares = tuple[float, float, float]  # low, expected, high
HALF = 0.5  # of a backward pass: as many FLOP for the gradients of weights as for those of activations


def node_ns(facts: Facts, nodes: I8) -> I8:
    """The time of each node: of the device's work that it launches, or its own in a CPU-only run. Shape (nodes,)."""
    if facts.has_gpu:
        return facts.regions.work_ns(nodes)
    return facts.slices.duration_of(nodes)


def held_ns(facts: Facts, rows: I8) -> I8:
    """For how long each row keeps the device busy or waiting; its own time in a CPU-only run. Shape (rows,)."""
    if not facts.has_gpu:
        return node_ns(facts, rows)
    waits: I8 = facts.stalled_within(facts.slices.start[rows], facts.slices.end[rows])
    return node_ns(facts, rows) + waits


def nodes_per_step_ns(facts: Facts, nodes: I8) -> float:
    return float(node_ns(facts, nodes).sum()) / facts.steps.count


def node_evidence(facts: Facts, nodes: I8, what: str | None = None, limit: int = 5) -> list[Evidence]:
    """One row for each line that calls them, most expensive first. `what`: None for the name of the call."""
    return site_evidence(facts, by_calling_site(facts, nodes, node_ns(facts, nodes)), what, limit)


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


def gradient_additions(facts: Facts) -> I8:
    """The nodes that add to the gradients of parameters."""
    return facts.slices.outermost(facts.regions.named(is_gradient_accumulation, OP)).astype(np.int64)


def products_ns(facts: Facts, products: I8) -> float:
    """Per step: what operators such as matmuls take, on the device or in a CPU-only run."""
    if facts.has_gpu:
        return launched_ns(facts, _work_of(facts, products))
    return facts.steps.mean_ns(area_of(facts, products))


def weight_share(facts: Facts, products: I8) -> float:
    """Which part of such products' time the gradients of weights take: where convolutions run kernels with names that
    say so, these kernels and the sums over biases; else half, because they have as many FLOP as those of activations.
    """
    if not facts.has_gpu:
        return HALF
    gpu, names = facts.gpu, facts.trace.names
    convolutions = products[facts.regions.named(is_convolution, OP)[products]]
    work = _work_of(facts, convolutions)
    codes = [code for code in distinct_values(gpu.work.name[work]).tolist() if is_gradient(names[code])]
    of_weights = work & np.isin(gpu.work.name, codes)
    total_ns, convolving_ns = products_ns(facts, products), products_ns(facts, convolutions)
    if not of_weights.any() or not total_ns:
        return HALF
    known_ns = launched_ns(facts, of_weights | (work & gpu.kind.among("reduction")))
    return (known_ns + HALF * (total_ns - convolving_ns)) / total_ns


def without_part_of(
    facts: Facts,
    products: I8,
    shares: Shares,
    basis: str,
    at_best: tuple[I8, float] | None = None,
    always: tuple[I8, float] | None = None,
) -> Price:
    """Without a share of the time of such products, as of those for the gradients of weights. `at_best`: other rows,
    such as whole backward passes, and the share of their time that goes at best. `always`: the same for rows that lie
    outside the products and go in any case.
    """
    parts = [(products, share) for share in shares]
    if at_best is not None:
        parts[-1] = at_best
    others = [always] if always is not None else []
    bounds, removed = [], []
    for part in parts:
        bounds.append(sum(share * products_ns(facts, rows) for rows, share in (part, *others)))
        removed.append([change for rows, share in (part, *others) for change in _without(facts, rows, share)])
    low, expected, high = removed
    return priced(facts, (bounds[0], bounds[1], bounds[2]), expected, basis, low=low, high=high)


def _without(facts: Facts, rows: I8, share: float) -> Sequence[Change]:
    if facts.has_gpu:
        return shorter(facts, _work_of(facts, rows), share * products_ns(facts, rows))
    return [RemoveHost(area_of(facts, rows), share)]


def _work_of(facts: Facts, rows: I8) -> Mask:
    """The device's work."""
    return facts.regions.work_under(facts.slices.mask(rows))
