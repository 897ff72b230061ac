"""Prices backward nodes that a fix removes: their kernels and launches, or their time on the CPU."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import RemoveHost, RemoveLaunches
from traceopt.analyzer.tables.schema import I8
from traceopt.rules.savings.price import Price
from traceopt.rules.savings.pricing import Changes, area_of, priced
from traceopt.rules.savings.starvation import host_bounds


def node_ns(facts: Facts, nodes: I8) -> I8:
    """The time of each node: of the device's work that it launches, or its own in a CPU-only run. Shape (nodes,)."""
    if facts.has_gpu:
        return facts.regions.work_ns(nodes)
    return facts.slices.end[nodes] - facts.slices.start[nodes]


def nodes_per_step_ns(facts: Facts, nodes: I8) -> float:
    return float(node_ns(facts, nodes).sum()) / facts.steps.count


def without_nodes(facts: Facts, nodes: npt.NDArray[np.int64], low: float, expected: float, basis: str) -> Price:
    """`low` and `expected`: the share of the nodes' time that the fix removes; at best it is all."""
    area = area_of(facts, nodes)
    work = np.zeros(len(facts.slices), bool)
    work[nodes] = True
    launched = facts.regions.work_under(work)

    def removal(share: float) -> Changes:
        return [RemoveHost(area, share), *([RemoveLaunches(launched, share)] if facts.has_gpu else [])]

    gpu_ns = nodes_per_step_ns(facts, nodes) if facts.has_gpu else 0.0
    least, usual, most = host_bounds(facts, area, 1.0, (gpu_ns, gpu_ns))
    return priced(
        facts,
        (low * least, expected * usual, most),
        removal(expected),
        basis,
        low=removal(low),
        high=removal(1.0),
    )
