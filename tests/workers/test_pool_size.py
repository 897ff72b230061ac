"""Number of processes: limited by the amount of work, cores and memory."""

from __future__ import annotations

import pytest

from traceopt.analyzer.reading.sources import TraceSource
from traceopt.analyzer.recordings.cycle_pairs import RankRecording
from traceopt.workers import pool_size
from traceopt.workers.rank_task import RankOptions, RankTask

GB = 10**9


def tasks(count: int, size_bytes: int, suffix: str = ".json") -> list[RankTask]:
    source = TraceSource(f"/a{suffix}", None, f"a{suffix}", size_bytes=size_bytes)
    return [RankTask(RankRecording(source), RankOptions())] * count


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_size, "usable_cores", lambda: 64)
    monkeypatch.setattr(pool_size, "available_memory_bytes", lambda: 32 * GB)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("of", "jobs"),
    [
        (tasks(2, 100_000), 1),
        (tasks(30, 100_000), 30),
        (tasks(1024, 100_000), 64),
        (tasks(1024, 4 * GB), 10),
        (tasks(1024, 400_000_000, ".json.gz"), 6),
        (tasks(8, 100 * GB), 1),
        ([*tasks(1, 30 * GB), *tasks(60, GB)], 11),
    ],
    ids=["not worth it", "each of few", "cores", "memory", "compressed", "one at least", "the largest together"],
)
def test_jobs(of: list[RankTask], jobs: int) -> None:
    assert pool_size.jobs_for(of) == jobs


def test_memory_that_is_not_known_is_no_limit() -> None:
    assert pool_size.fitting([GB] * 5, None) == 5
