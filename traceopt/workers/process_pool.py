"""Ranks in a pool of processes on this machine, none of which outlives this one or keeps it waiting.

A worker may die any time, above all when memory runs out. Who died cannot be told, so all ranks that were under way are
tried again, each with no other beside it; one whose worker dies then too is given up.
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
from traceopt.workers.answers import WORKER_DIED, Answer, Answers
from traceopt.workers.progress_line import Pace
from traceopt.workers.rank_analysis import analyze_rank
from traceopt.workers.rank_task import RankTask

_LOOK_EVERY_S = 0.5  # at the workers' count of bytes


class ProcessPool(Struct, frozen=True):
    """`jobs` processes at a time."""

    jobs: int
    notes: Sequence[str] = ()

    def run(self, tasks: Sequence[RankTask], pace: Pace) -> Answers:
        read_bytes = _context().RawArray("q", len(tasks))  # without a lock, which a dying worker might hold
        waiting = deque(range(len(tasks)))
        lost: deque[int] = deque()
        while waiting:
            lost += yield from _until_broken(self.jobs, tasks, waiting, read_bytes, pace)
        while lost:
            for index in (yield from _until_broken(1, tasks, lost, read_bytes, pace)):
                yield index, InputError(WORKER_DIED.format(tasks[index].label))


def _until_broken(
    jobs: int, tasks: Sequence[RankTask], waiting: deque[int], read_bytes: Any, pace: Pace
) -> Generator[tuple[int, Answer], None, list[int]]:
    """Takes places from `waiting` until there is none, or a worker died; returns those that were under way then."""
    flying: dict[Future[bytes], int] = {}
    lost: list[int] = []
    with _workers(jobs, read_bytes) as pool:
        while True:
            while waiting and not lost and len(flying) < jobs:  # no more, so that all in flight are under way
                try:
                    flying[pool.submit(_work, tasks[waiting[0]], waiting[0])] = waiting[0]
                except BrokenProcessPool:
                    break
                waiting.popleft()
            if not flying:
                return lost
            done, _ = wait(flying, _LOOK_EVERY_S, FIRST_COMPLETED)
            pace.have_read(sum(read_bytes))
            for future in done:
                index = flying.pop(future)
                error = future.exception()
                if isinstance(error, BrokenProcessPool):
                    lost.append(index)
                elif isinstance(error, Exception):
                    yield index, error
                else:
                    yield index, future.result()


@contextmanager
def _workers(jobs: int, read_bytes: Any) -> Iterator[ProcessPoolExecutor]:
    """A pool that is gone, whatever it was at, when the block is left or this process ends in any way."""
    context = _context()
    leash, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(jobs, context, _begin, (leash, dict(os.environ), read_bytes))
    try:
        yield pool
    finally:
        ours.close()
        pool.shutdown(cancel_futures=True)
        leash.close()


def _context() -> Any:
    """Never a fork of this process, which may hold threads and locks: of a fresh one, or a fresh one each."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([analyze_rank.__module__])  # imported once for all workers
    return context


_read_bytes: list[Any] = []  # of this worker: the bytes read by place of the task, in memory that all share


def _begin(leash: Connection, environment: dict[str, str], read_bytes: Any) -> None:
    os.environ.clear()  # what workers are forked from was started earlier, perhaps in another environment
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes of a terminal; the parent answers it
    threading.Thread(target=_end_with_parent, args=(leash,), daemon=True).start()
    _read_bytes[:] = [read_bytes]


def _end_with_parent(leash: Connection) -> None:
    with suppress(EOFError, OSError):
        leash.recv_bytes()
    os._exit(1)


def _work(task: RankTask, index: int) -> bytes:
    counts = _read_bytes[0]
    counts[index] = 0

    def count(byte_count: int) -> None:
        counts[index] += byte_count

    return analyze_rank(task, count)
