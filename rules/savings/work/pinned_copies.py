"""How much faster copies between pageable memory of the host and the device are with pinned memory."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import intersect, union
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.schema import Mask
from traceopt.analyzer.vocabulary.architectures import pinned_gb_per_s
from traceopt.analyzer.work.copies import CopyCalls

UNKNOWN_GB_PER_S = 20.0  # from pinned memory, where the device does not say: between PCIe 3 and 4
UNKNOWN_FACTOR = 0.5  # of the time, where the size of the copies is not known


class PageableCopies(Struct, frozen=True):
    """`work` marks the copies among the device's work. From pinned memory they take `factor` times as long, by the rate
    from `source`. `exposed_ns`: per step, while nothing computes.
    """

    calls: CopyCalls
    work: Mask
    exposed_ns: float
    pinned_gb_per_s: float
    source: str

    @property
    def factor(self) -> float:
        return _factor(self.calls, self.pinned_gb_per_s)


def pageable_copies(facts: Facts, expected_gb_per_s: float = 0.0) -> PageableCopies | None:
    """None without any. `expected_gb_per_s`: the rate from pinned memory; 0: that of pinned copies in the same trace,
    else of the device's link.
    """
    calls = next((copy for copy in facts.copies if copy.kind == "HtoD pageable"), None)
    if calls is None:
        return None
    work = np.zeros(len(facts.gpu.work), bool)
    work[calls.rows] = True
    copying = facts.gpu.work.take(calls.rows)
    exposed = intersect(union(copying.start, copying.end), facts.gpu.exposed_copies)
    in_trace = _pinned_in_trace(facts, calls)
    pinned = expected_gb_per_s or in_trace or _pinned_by_device(facts)
    source = "pinned copies of this trace" if pinned == in_trace else "pinned memory"
    return PageableCopies(calls, work, facts.steps.mean_ns(exposed), pinned, source)


def factor_to_host(facts: Facts) -> float:
    """How long a copy to the host takes with pinned memory, as a share of what the copies to pageable memory take now;
    1 if no copy is known to be one. Unless the trace shows pinned copies, halfway between no gain and the rate of the
    device's link: hosts reach from a fifth of that to all of it.
    """
    calls = next((copy for copy in facts.copies if copy.kind == "DtoH pageable"), None)
    if calls is None:
        return 1.0
    in_trace = _pinned_in_trace(facts, calls)
    return _factor(calls, in_trace) if in_trace else (1 + _factor(calls, _pinned_by_device(facts))) / 2


def _factor(calls: CopyCalls, pinned: float) -> float:
    rate = calls.gb_per_s
    return min(1.0, rate / pinned) if rate else UNKNOWN_FACTOR


def _pinned_by_device(facts: Facts) -> float:
    return pinned_gb_per_s(facts.device.arch) or UNKNOWN_GB_PER_S


def _pinned_in_trace(facts: Facts, pageable: CopyCalls) -> float | None:
    """GB/s of pinned copies in this trace that are as large as a pageable one; None without any. Smaller copies mostly
    take the time to start one.
    """
    kind = pageable.kind.replace("pageable", "pinned")
    pinned = next((copy for copy in facts.copies if copy.kind == kind), None)
    if pinned is None or not pageable.bytes:
        return None
    work = facts.gpu.work.take(pinned.rows)
    large = work.bytes >= pageable.bytes / pageable.calls
    took_ns = int(work.duration[large].sum())
    return int(work.bytes[large].sum()) / took_ns if took_ns else None
