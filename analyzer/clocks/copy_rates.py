"""Copies between the host and a device that are faster than any link between them."""

from __future__ import annotations

import re

import numpy as np

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.tables.schema import MEMCPY
from traceopt.analyzer.tables.trace import TimeFault, Trace

# CUDA's names. AMD's are left out: host and device of an MI300A share their memory.
_OVER_LINK = re.compile(r"Memcpy (HtoD|DtoH)\b")
_LINK_GB_PER_S = 900  # NVLink-C2C of Vera Rubin in one direction; 450 with Grace, 64 over PCIe 5
_LINK_BEFORE_HOPPER_GB_PER_S = 75  # three NVLink 2 of a V100 to a POWER9; 32 over PCIe 4
_HOPPER = 9  # compute capability
_MAX_SHARE = 0.1  # of the copies: if more are too fast, it is no single wrong duration


def no_faster_than_links(trace: Trace) -> tuple[Trace, list[TimeFault]]:
    """The trace as it is, and a fault if copies are too fast: their durations are in another unit."""
    gpu = trace.gpu
    rows = np.flatnonzero((gpu.kind == MEMCPY) & (gpu.bytes > 0) & (gpu.duration > 0))
    over_link = [code for code in distinct_values(gpu.name[rows]).tolist() if _OVER_LINK.match(trace.names[code])]
    rows = rows[np.isin(gpu.name[rows], over_link)]
    too_fast = int((gpu.bytes[rows] / _most_gb_per_s(trace) > gpu.duration[rows]).sum())
    return trace, [TimeFault("unit", False, too_fast, len(rows))] if too_fast > _MAX_SHARE * len(rows) else []


def _most_gb_per_s(trace: Trace) -> int:
    """GB/s in one direction, as bytes per ns."""
    majors = [device.get("computeMajor") for device in trace.meta.device_properties()]
    known = [major for major in majors if isinstance(major, int | float)]
    before_hopper = bool(known) and max(known) < _HOPPER
    return _LINK_BEFORE_HOPPER_GB_PER_S if before_hopper else _LINK_GB_PER_S
