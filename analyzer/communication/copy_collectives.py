"""Collectives that the copy engines run: copies between GPUs instead of kernels."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.tables.schema import MEMCPY, Mask
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP, Slices
from traceopt.analyzer.timeline.launch_links import LaunchLinks
from traceopt.analyzer.vocabulary import op_names

_BETWEEN_GPUS = ("Memcpy PtoP",)
_ON_DEVICE = ("Memcpy DtoD", *_BETWEEN_GPUS)


def copy_collectives(trace: Trace, slices: Slices, links: LaunchLinks) -> Mask:
    """Which rows of trace.gpu are copies that a collective consists of.

    Operators of symmetric memory copy from the buffers of other GPUs, which the driver may call device to device. In
    other collectives only copies between GPUs count, because they also copy within a device. Shape (len(trace.gpu),).
    """
    copies = trace.gpu.kind == MEMCPY
    found = np.zeros(len(trace.gpu), bool)
    for is_collective, names in (
        (op_names.is_symmetric_memory, _ON_DEVICE),
        (op_names.is_collective_annotation, _BETWEEN_GPUS),
    ):
        collective = np.array([is_collective(name) for name in trace.names] or [False])
        named = np.array([name.startswith(names) for name in trace.names] or [False])
        rows = np.flatnonzero(copies & named[trace.gpu.name])
        if len(rows) and collective.any():
            inside = collective[slices.name] & np.isin(slices.kind, (ANNOTATION, OP))
            found[rows] |= slices.ancestor(links.launch_slice[rows], inside) >= 0
    return found
