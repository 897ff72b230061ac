"""Number of worker processes: limited by the cores, and by the free memory for the traces."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from traceopt.workers.rank_task import RankTask

WORTH_BYTES = 40_000_000  # total text; with less, one process is done before others have started
RANK_BYTES = 2_000_000  # text that takes as long to read as the fixed cost of a rank
PROCESS_BYTES = 100_000_000  # memory of a process without a trace
MEMORY_PER_TEXT = 0.6  # bytes of memory per byte of text; measured in docs/performance.md
TEXT_PER_GZIP = 15  # bytes of text per byte of gzip; real traces have 8 to 20
USABLE_SHARE = 0.8  # of the memory that is free now
_CGROUP = Path("/sys/fs/cgroup")


def jobs_for(tasks: Sequence[RankTask]) -> int:
    """The number of worker processes that is worthwhile. Assumes that the largest ranks are read at the same time."""
    texts = [text_bytes(task) for task in tasks]
    if sum(text + RANK_BYTES for text in texts) < WORTH_BYTES:
        return 1
    return min(len(tasks), usable_cores(), fitting(texts, free_bytes()))


def text_bytes(task: RankTask) -> int:
    """Estimated size of the uncompressed text of the files."""
    return sum(
        source.size_bytes * (TEXT_PER_GZIP if source.label.endswith(".gz") else 1) for source in task.recording.sources
    )


def fitting(texts: Sequence[int], free: int | None) -> int:
    """How many of the largest traces fit into memory together; at least one."""
    if free is None:
        return len(texts)
    left = free * USABLE_SHARE
    for count, text in enumerate(sorted(texts, reverse=True)):
        left -= PROCESS_BYTES + text * MEMORY_PER_TEXT
        if left < 0:
            return max(1, count)
    return len(texts)


def usable_cores() -> int:
    """Cores that this process may run on, limited by the CPU quota of its containers."""
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    for group in _control_groups():
        with suppress(OSError, ValueError):
            quota, period = (group / "cpu.max").read_text().split()
            cores = min(cores, int(quota) / int(period))
    return max(1, round(cores))


def free_bytes() -> int | None:
    """Free memory of this machine and of this process's containers; None if the system does not report it."""
    known = []
    with suppress(OSError, ValueError, KeyError):
        known.append(_table(Path("/proc/meminfo"))["MemAvailable:"] << 10)
    for group in _control_groups():
        with suppress(OSError, ValueError, KeyError):
            limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
            known.append(max(0, limit - used + _table(group / "memory.stat")["inactive_file"]))
    return min(known, default=None)


def _control_groups() -> list[Path]:
    """The control groups of this process, innermost first (cgroup 2)."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::/"):
                inner = _CGROUP / line.removeprefix("0::/")
                return [group for group in (inner, *inner.parents) if group.is_relative_to(_CGROUP)]
    return []


def _table(path: Path) -> dict[str, int]:
    return {words[0]: int(words[1]) for line in path.read_text().splitlines() if (words := line.split())}
