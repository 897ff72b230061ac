"""The start-up of a process: how long it took to the end of the first step, by part and by the user's line.

`document()` is the key `start_up` of a trace's metadata:

{"us", "python_us" or null, "samples", "interval_us", "cost_us",
 "parts": [{"part", "us", "lines": [{"file", "line", "function", "what" or null, "us"}]}]}

`us` runs from the creation of the process, `python_us` of it until traceopt was loaded, before the script. The parts
are sampled: what happened while nothing was sampled belongs to none.
"""

from __future__ import annotations

import _thread
import os
import time

from .stack_sampler import INTERVAL_S, StackSampler

MOST_PYTHON_S = 60.0  # to start Python; an older process did something else before, such as a shell script


class StartUp:
    """Begins when it is created. Only the thread that creates it is sampled."""

    def __init__(self) -> None:
        self._python_s = process_age_s()
        self.sampler = StackSampler()
        self.sampler.start()
        self._ended: float | None = None
        self._document: dict[str, object] | None = None

    def first_step_ended(self) -> None:
        self.sampler.stop()
        self._ended = time.perf_counter()
        self.sampler.lost |= _thread.get_ident() != self.sampler.thread
        # `document` needs this module. It is too slow to load at the start of every process. Loaded after Ctrl-C, it
        # would change the exit code: typing evaluates text, and Python then forgets that Ctrl-C ended the script.
        from . import breakdown  # noqa: F401

    def goes_on(self) -> None:
        """The steps so far were no training steps."""
        self._ended = self._document = None
        self.sampler.start()

    def give_up(self) -> None:
        """Ends the sampling for good: this run does not report its start-up."""
        self.sampler.stop()
        self.sampler.stacks.clear()
        self.sampler.lost = True

    def document(self) -> dict[str, object] | None:
        """None before the end of the first step, and in a process that began as a copy of another one."""
        if self._ended is None or self.sampler.lost:
            return None
        if self._document is None:
            self._document = self._described(self._ended)
            self.sampler.stacks.clear()
        return self._document

    def looped_step(self) -> str | None:
        """What `--step-on` may name in a run that has ended no step; None if nothing was sampled."""
        from .looped_calls import step_among

        return None if self.sampler.lost else step_among(self.sampler.stacks)

    def _described(self, ended: float) -> dict[str, object]:
        from .breakdown import parts_of

        total_s = ended - self.sampler.began + (self._python_s or 0.0)
        return {
            "us": round(total_s * 1e6, 1),
            "python_us": None if self._python_s is None else round(self._python_s * 1e6, 1),
            "samples": len(self.sampler.stacks),
            "interval_us": INTERVAL_S * 1e6,
            "cost_us": round(self.sampler.cost_s * 1e6, 1),
            "parts": parts_of(self.sampler.stacks),
        }


def process_age_s() -> float | None:
    """Seconds since the process was created; None where the system does not say so, or it was no Python before."""
    try:
        with open("/proc/self/stat", "rb") as file:
            started = int(file.read().rpartition(b")")[2].split()[19])  # clock ticks since the machine started
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return age_s if 0.0 <= age_s <= MOST_PYTHON_S else None
