"""Copies between host and device and on the device: bytes and rates by kind."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import intersect, union
from traceopt.analyzer.tables.schema import I8, MEMCPY
from traceopt.analyzer.timeline.gpu_work import GpuWork

_COPY_NAME = re.compile(r"Memcpy (?P<direction>\w+) \((?P<source>\w+) -> (?P<target>\w+)\)")


class CopyCalls(Struct, frozen=True):
    """Copies of one kind inside the window. `rows` index the device's work."""

    kind: str  # "HtoD pageable", "HtoD pinned", "DtoH pageable", "DtoD", "PtoP", ...
    rows: I8
    duration_ns: int
    exposed_ns: int  # not overlapped by compute or communication
    bytes: int | None  # None: unknown (HIP may record 0 or nothing)

    @property
    def calls(self) -> int:
        return len(self.rows)

    @property
    def gb_per_s(self) -> float | None:
        return self.bytes / self.duration_ns if self.bytes and self.duration_ns else None


def copy_kind(name: str) -> str:
    """ "Memcpy HtoD (Pageable -> Device)" -> "HtoD pageable"; HIP's "Host" says neither pageable nor pinned."""
    match = _COPY_NAME.match(name)
    if match is None:
        return name.removeprefix("Memcpy ").split(" (")[0]
    host = {match["source"], match["target"]} & {"Pageable", "Pinned"}
    return f"{match['direction']} {host.pop().lower()}" if host else match["direction"]


def find_copies(gpu: GpuWork) -> list[CopyCalls]:
    """The copies by kind, longest first."""
    rows = np.flatnonzero((gpu.work.kind == MEMCPY) & gpu.is_copy & gpu.is_inside)
    kinds = {code: copy_kind(gpu.trace.names[code]) for code in distinct_values(gpu.work.name[rows]).tolist()}
    out = []
    for kind in sorted(set(kinds.values())):
        mine = rows[np.isin(gpu.work.name[rows], [c for c, k in kinds.items() if k == kind])]
        area = union(gpu.work.start[mine], gpu.work.end_of(mine))
        size = gpu.work.bytes[mine]
        known = bool((size >= 0).all()) and bool((size > 0).any())
        out.append(
            CopyCalls(
                kind,
                mine,
                int(gpu.in_window[mine].sum()),
                intersect(area, gpu.exposed_copies).total,
                int(size.sum()) if known else None,
            )
        )
    return sorted(out, key=lambda c: -c.duration_ns)
