"""Number of worker processes: limited by the cores, and by the free memory for the traces."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.capture.machine import available_memory_bytes, usable_cores
from traceopt.workers.rank_task import RankTask

WORTH_BYTES = 40_000_000  # total text; with less, one process is done before others have started
RANK_BYTES = 2_000_000  # text that takes as long to read as the fixed cost of a rank
PROCESS_BYTES = 100_000_000  # memory of a process without a trace
MEMORY_PER_TEXT = 0.6  # bytes of memory per byte of text; measured in docs/performance.md
TEXT_PER_GZIP = 15  # bytes of text per byte of gzip; real traces have 8 to 20
USABLE_SHARE = 0.8  # of the memory that is free now


def jobs_for(tasks: Sequence[RankTask]) -> int:
    """The number of worker processes that is worthwhile. Assumes that the largest ranks are read at the same time."""
    texts = [text_bytes(task) for task in tasks]
    if sum(text + RANK_BYTES for text in texts) < WORTH_BYTES:
        return 1
    return min(len(tasks), usable_cores(), fitting(texts, available_memory_bytes()))


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
