"""The memory that the processes of a script hold, and what the machine has left. Only Linux tells."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def resident_bytes(session: int) -> int | None:
    """The resident memory of all processes of a session; pages that they share count for each."""
    pages = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # the process has ended
            after_name = path.read_text(errors="replace").rpartition(")")[2].split()
            if int(after_name[3]) == session:
                pages += int(after_name[21])
    return pages * os.sysconf("SC_PAGE_SIZE") if pages else None


def free_bytes() -> int | None:
    """What new processes can use: of the machine, and of the container if there is a limit (cgroup v2)."""
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(fields["MemAvailable"].split()[0]) << 10
    except (OSError, ValueError, KeyError, IndexError):
        return None
    with contextlib.suppress(OSError, ValueError, KeyError):  # no limit is the word "max"
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        free = min(free, limit - used + int(counts["inactive_file"]))
    return free
