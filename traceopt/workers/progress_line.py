"""The progress line while ranks are read: how many are done, the reading rate, the time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from traceopt.workers.rank_task import RankTask

ShowProgress = Callable[[str], None]

_UPDATE_EVERY_S = 0.1
_RATE_AFTER_S = 1.0  # before that the rate is unreliable


class ProgressLine:
    """Counts bytes of the files as stored, compressed or not, because only those sizes are known in advance."""

    def __init__(
        self, progress: ShowProgress | None, tasks: Sequence[RankTask], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._progress = progress
        self._tasks = tasks
        self._clock = clock
        self._all_bytes = sum(task.size_bytes for task in tasks)
        self._read_bytes = 0
        self._done = 0
        self._done_bytes = 0
        self._begin_s = clock()
        self._updated_s = self._begin_s
        self._showed_end = False
        self._tell(always=True)

    def read(self, byte_count: int) -> None:
        """This many more bytes were read."""
        self.have_read(self._read_bytes + byte_count)

    def have_read(self, byte_count: int) -> None:
        """This many bytes were read in total, by finished and running ranks."""
        self._read_bytes = byte_count
        self._tell()

    def done(self, task: RankTask) -> None:
        """A rank is done, even if it was not read or failed early."""
        self._done += 1
        self._done_bytes += task.size_bytes
        self._tell()

    def _tell(self, *, always: bool = False) -> None:
        now_s = self._clock()
        read = min(max(self._read_bytes, self._done_bytes), self._all_bytes)
        ends = read == self._all_bytes and not self._showed_end
        if self._progress is not None and (always or ends or now_s - self._updated_s >= _UPDATE_EVERY_S):
            self._updated_s, self._showed_end = now_s, self._showed_end or ends
            self._progress(self._line(read, now_s - self._begin_s))

    def _line(self, read: int, elapsed_s: float) -> str:
        several = len(self._tasks) > 1
        what = f"{self._done} of {len(self._tasks)} ranks" if several else self._tasks[0].label
        if read == self._all_bytes:
            return f"analyzing {what}"
        parts = [f"reading {what}", f"{read / 1e6:,.0f} of {self._all_bytes / 1e6:,.0f} MB"]
        if elapsed_s >= _RATE_AFTER_S and read:
            parts.append(f"{read / elapsed_s / 1e6:,.1f} MB/s")
            parts.append(f"{_duration(elapsed_s * (self._all_bytes - read) / read)} left")
        return " · ".join(parts)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
