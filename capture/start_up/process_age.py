"""How long this process has existed, by the operating system."""

from __future__ import annotations

import os
import time

MOST_S = 60.0  # to start Python; an older process did something else before, such as a shell script


def process_age_s() -> float | None:
    """Seconds since the process was created; None where the system does not say so, or it was no Python before."""
    try:
        with open("/proc/self/stat", "rb") as file:
            started = int(file.read().rpartition(b")")[2].split()[19])  # clock ticks since the machine started
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return age_s if 0.0 <= age_s <= MOST_S else None
