"""What the machine and the containers around this process leave it: cores, memory. Only Linux says all of it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")
_OWN_GROUP = Path("/proc/self/cgroup")


def usable_cores() -> int:
    """Cores that this process may run on, limited by the CPU quota of its containers."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, round(min(cores, cpu_quota() or cores)))


def cpu_quota() -> float | None:
    """The lowest CPU limit of the containers, in cores; None without a limit."""
    quotas = []
    for group in control_groups():
        with suppress(OSError, ValueError, ZeroDivisionError):  # ValueError: the limit is "max"
            quota, period = map(int, (group / "cpu.max").read_text().split())
            quotas.append(quota / period)
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (int((CGROUP / "cpu" / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        quotas += [quota / period] if quota > 0 else []
    return round(min(quotas), 3) if quotas else None


def available_memory_bytes() -> int | None:
    """Memory that programs can still get, of the machine and of its containers; None where the system does not say."""
    available = []
    with suppress(OSError, ValueError, KeyError):
        available.append(_table(MEMINFO)["MemAvailable:"] << 10)
    names = ("memory.max", "memory.current", "inactive_file")
    groups = [(group, *names) for group in control_groups()]
    groups.append((CGROUP / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"))
    for group, limit, usage, inactive in groups:
        with suppress(OSError, ValueError):
            limit_bytes, used_bytes = (int((group / name).read_text()) for name in (limit, usage))
            cached_bytes = _table(group / "memory.stat").get(
                inactive, 0
            )  # what the container gives up when it needs memory
            available.append(max(0, limit_bytes - used_bytes + cached_bytes))
    return min(available, default=None)


def control_groups() -> list[Path]:
    """The control groups of this process, innermost first (cgroup 2)."""
    with suppress(OSError):
        for line in _OWN_GROUP.read_text().splitlines():
            if line.startswith("0::/"):
                inner = CGROUP / line.removeprefix("0::/")
                return [group for group in (inner, *inner.parents) if group.is_relative_to(CGROUP)]
    return []


def _table(path: Path) -> dict[str, int]:
    return {words[0]: int(words[1]) for line in path.read_text().splitlines() if (words := line.split())}
