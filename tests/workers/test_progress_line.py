"""The progress line: ranks, megabytes, rate and time left."""

from __future__ import annotations

from traceopt.analyzer.reading.sources import TraceSource
from traceopt.analyzer.recordings.cycle_pairs import RankRecording
from traceopt.workers.progress_line import ProgressLine
from traceopt.workers.rank_task import RankOptions, RankTask


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def task(label: str, megabytes: int) -> RankTask:
    return RankTask(RankRecording(TraceSource(f"/{label}", None, label, size_bytes=megabytes * 10**6)), RankOptions())


def test_one_trace() -> None:
    lines: list[str] = []
    clock = Clock()
    line = ProgressLine(lines.append, [task("a.json", 400)], clock)
    clock.now += 4
    line.read(100_000_000)
    line.read(1_000_000)  # too soon after the last update: not shown
    clock.now += 200
    line.read(2_000_000)
    line.read(297_000_000)
    assert lines == [
        "reading a.json · 0 of 400 MB",
        "reading a.json · 100 of 400 MB · 25.0 MB/s · 12 s left",
        "reading a.json · 103 of 400 MB · 0.5 MB/s · 10 min left",
        "analyzing a.json",
    ]


def test_many_ranks() -> None:
    lines: list[str] = []
    clock = Clock()
    tasks = [task(f"rank{rank}.json", 1000) for rank in range(4)]
    line = ProgressLine(lines.append, tasks, clock)
    clock.now += 10
    line.have_read(1_500_000_000)
    clock.now += 10
    line.done(tasks[2])
    clock.now += 20
    line.done(tasks[0])  # from the cache: it was not read
    assert lines == [
        "reading 0 of 4 ranks · 0 of 4,000 MB",
        "reading 0 of 4 ranks · 1,500 of 4,000 MB · 150.0 MB/s · 17 s left",
        "reading 1 of 4 ranks · 1,500 of 4,000 MB · 75.0 MB/s · 33 s left",
        "reading 2 of 4 ranks · 2,000 of 4,000 MB · 50.0 MB/s · 40 s left",
    ]
    for rank in (1, 3):
        line.done(tasks[rank])
    assert lines[-1] == "analyzing 4 of 4 ranks"


def test_nobody_listens() -> None:
    ProgressLine(None, [task("a.json", 1)]).read(10**6)
