"""Ranks in a pool of processes on this machine, none of which outlives this process or blocks its exit.

A worker may die at any time, usually because memory runs out. It is unknown which one died, so all ranks that were
running are tried again one at a time. A rank whose worker dies again is given up.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

from msgspec import Struct

from traceopt.errors import InputError
from traceopt.rules.registry import builtin_modules
from traceopt.workers.answers import WORKER_DIED, Answer, Answers
from traceopt.workers.progress_line import ProgressLine
from traceopt.workers.rank_analysis import analyze_rank
from traceopt.workers.rank_task import RankTask

_LOOK_EVERY_S = 0.5  # interval for reading the workers' byte counts


class ProcessPool(Struct, frozen=True):
    """Runs `jobs` processes at a time."""

    jobs: int
    notes: Sequence[str] = ()

    def run(self, tasks: Sequence[RankTask], line: ProgressLine) -> Answers:
        read_bytes = _context().RawArray("q", len(tasks))  # no lock, because a dying worker might hold it
        waiting = deque(range(len(tasks)))
        lost: deque[int] = deque()
        while waiting:
            lost += yield from _until_broken(self.jobs, tasks, waiting, read_bytes, line)
        while lost:
            for index in (yield from _until_broken(1, tasks, lost, read_bytes, line)):
                yield index, InputError(WORKER_DIED.format(tasks[index].label))


def _until_broken(
    jobs: int, tasks: Sequence[RankTask], waiting: deque[int], read_bytes: Any, line: ProgressLine
) -> Generator[tuple[int, Answer], None, list[int]]:
    """Takes indices from `waiting` until it is empty or a worker dies; returns those that were running then."""
    running: dict[Future[bytes], int] = {}
    lost: list[int] = []
    with _workers(jobs, read_bytes) as pool:
        while True:
            # No more than `jobs`, so that all submitted tasks are running.
            while waiting and not lost and len(running) < jobs:
                try:
                    running[pool.submit(_work, tasks[waiting[0]], waiting[0])] = waiting[0]
                except BrokenProcessPool:
                    break
                waiting.popleft()
            if not running:
                return lost
            done, _ = wait(running, _LOOK_EVERY_S, FIRST_COMPLETED)
            line.have_read(sum(read_bytes))
            for future in done:
                index = running.pop(future)
                error = future.exception()
                if isinstance(error, BrokenProcessPool):
                    lost.append(index)
                elif isinstance(error, Exception):
                    yield index, error
                else:
                    yield index, future.result()


@contextmanager
def _workers(jobs: int, read_bytes: Any) -> Iterator[ProcessPoolExecutor]:
    """A pool that ends with the block, or with this process however it ends, no matter what the workers are doing."""
    context = _context()
    parent_pipe, our_end = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(jobs, context, _begin, (parent_pipe, dict(os.environ), read_bytes))
    try:
        yield pool
    finally:
        our_end.close()
        pool.shutdown(cancel_futures=True)
        parent_pipe.close()


def _context() -> Any:
    """Never forks this process, which may hold threads and locks: forks a fresh one, or starts a fresh one
    each time.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([analyze_rank.__module__, *builtin_modules()])  # imported once for all workers
    return context


_read_bytes: list[Any] = []  # in a worker: bytes read by task index, in shared memory


def _begin(parent_pipe: Connection, environment: dict[str, str], read_bytes: Any) -> None:
    os.environ.clear()  # the fork server was started earlier, perhaps in a different environment
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; the parent handles it
    threading.Thread(target=_end_with_parent, args=(parent_pipe,), daemon=True).start()
    _read_bytes[:] = [read_bytes]


def _end_with_parent(parent_pipe: Connection) -> None:
    with suppress(EOFError, OSError):
        parent_pipe.recv_bytes()
    os._exit(1)


def _work(task: RankTask, index: int) -> bytes:
    counts = _read_bytes[0]
    counts[index] = 0

    def count(byte_count: int) -> None:
        counts[index] += byte_count

    return analyze_rank(task, count)
