"""What the link between the GPUs of one node can do for a collective."""

from __future__ import annotations

import re

from msgspec import Struct

from traceopt.analyzer.run_log.run_settings import Captured
from traceopt.analyzer.tables.trace import TraceMeta
from traceopt.analyzer.timeline.device import TraceDevice

FULL_GROUP = 8  # GPUs of a node that reach the full rate together; without a switch, a smaller group uses fewer links
_BRIDGED = re.compile(
    r"\bNVL\b|\bPCIe\b|\bMI[12][01]0\b", re.I
)  # bridges join two or four such cards; others meet over PCIe


class NodeLink(Struct, frozen=True):
    """NVLink or Infinity Fabric between the GPUs of the only node of a job."""

    gb_per_s: float  # in one direction, what one GPU sends over all of its links
    ranks: int  # of the job

    def bus_gb_per_s(self, group: int) -> float:
        """The rate that a group of this many ranks is sure to have, GB/s. 0: all ranks of the job."""
        links = (group or self.ranks) - 1
        return self.gb_per_s * min(1.0, links / (FULL_GROUP - 1))


def find_node_link(meta: TraceMeta, device: TraceDevice, device_id: int | None, captured: Captured) -> NodeLink | None:
    """None if the job may use several nodes, or if the rate of its GPUs' link is not known."""
    world, rank = meta.world_size or 0, meta.rank or 0
    link = device.accelerator.link_gb_per_s if device.accelerator else None
    if not link or world < 2 or _BRIDGED.search(device.name or ""):
        return None
    local = captured.environment.local_world_size
    if local is None and device.vendor.numbers_devices_by_rank and device_id != rank:
        return None  # on a single node, each rank uses the GPU with its number
    return NodeLink(link / 2, world) if world <= (local or device.count) else None
