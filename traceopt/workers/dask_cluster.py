"""Ranks on a Dask cluster: each is one task with a small result.

If a worker dies, Dask gives its task to another one. If Dask gives up because several workers died on the same task,
the rank is tried once more while nothing else runs. If the cluster disappears, or gives no more answers, this machine
reads the remaining ranks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from traceopt.errors import ConfigError, InputError, one_line
from traceopt.workers.answers import WORKER_DIED, Answer, Answers, Executor
from traceopt.workers.program_hash import program
from traceopt.workers.progress_line import ProgressLine
from traceopt.workers.rank_analysis import analyze_rank
from traceopt.workers.rank_task import RankTask, loaded

if TYPE_CHECKING:
    from distributed import Client

CONNECT_S = 10.0
WITHOUT_WORKERS_S = 60.0  # a cluster may be without a worker for this long, because one may be starting
QUIET_S, QUIET_TIMES = 120.0, 10.0  # with no answer for so long, and so many times as long as ever before, it hangs
_PROBE_EVERY_S = 1.0
_POLL_S = 0.02


class _ClusterGoneError(Exception):
    """No more answers are to be expected. The text says why, as a sentence without its end."""


class DaskCluster(Struct):
    """`instead` reads the remaining ranks if the cluster disappears or hangs."""

    address: str
    instead: Executor
    notes: list[str] = []

    def run(self, tasks: Sequence[RankTask], line: ProgressLine) -> Answers:
        """Raises ConfigError if there is no cluster at the address, or if it runs a different program."""
        left = set(range(len(tasks)))
        with _connected(self.address) as client:
            self._wait_for_a_worker(client)
            try:
                for index, answer in self._answers(client, [_portable(task) for task in tasks]):
                    left.remove(index)
                    yield index, answer
            except _ClusterGoneError as gone:
                self.notes.append(f"{gone}; this machine read {len(left):,} of {len(tasks):,} ranks.")
        if left:
            places = sorted(left)
            for index, answer in self.instead.run([tasks[place] for place in places], line):
                yield places[index], answer

    def _wait_for_a_worker(self, client: Client) -> None:
        until_s = time.monotonic() + WITHOUT_WORKERS_S
        try:
            while not _has_a_worker(client):
                if time.monotonic() > until_s:
                    raise ConfigError(
                        f"the Dask cluster at {self.address} has no worker after {WITHOUT_WORKERS_S:.0f} s"
                    )
                time.sleep(_POLL_S)
        except _ClusterGoneError:
            raise ConfigError(f"the Dask scheduler at {self.address} does not answer") from None

    def _answers(self, client: Client, tasks: Sequence[RankTask]) -> Iterator[tuple[int, Answer]]:
        """Yields the answers of all tasks. Raises _ClusterGoneError."""
        alive = _Alive(client)
        lost = yield from self._round(client, dict(enumerate(tasks)), alive)
        for index in lost:
            if (yield from self._round(client, {index: tasks[index]}, alive)):
                yield index, InputError(WORKER_DIED.format(tasks[index].label))

    def _round(
        self, client: Client, tasks: Mapping[int, RankTask], alive: _Alive
    ) -> Generator[tuple[int, Answer], None, list[int]]:
        """Runs all tasks at once; returns those whose workers died. Raises _ClusterGoneError."""
        from distributed import KilledWorker, as_completed

        lost: list[int] = []
        expected = program(loaded(next(iter(tasks.values())).options))
        running = {client.submit(_work, task, expected, pure=False): index for index, task in tasks.items()}
        completed = as_completed(list(running), loop=client.loop)
        while running:
            for future in completed.next_batch(block=False):
                try:
                    error = future.exception(timeout=CONNECT_S)
                    answer = error if error is not None else future.result(timeout=CONNECT_S)
                except TimeoutError:  # the worker with the result is gone: Dask runs the task again
                    completed.add(future)
                    continue
                except (CancelledError, OSError) as gone:
                    raise _ClusterGoneError(_DISAPPEARED) from gone
                alive.answered()
                index = running.pop(future)
                if isinstance(answer, KilledWorker):
                    lost.append(index)
                else:
                    yield index, _as_answer(answer)
            alive.check()
            time.sleep(_POLL_S)
        return lost


_DISAPPEARED = "The Dask cluster disappeared"


def _has_a_worker(client: Client) -> bool:
    """Raises _ClusterGoneError if the scheduler does not answer."""
    try:
        # As client.nthreads(), which waits forever if the scheduler's machine is gone.
        return bool(client.sync(client.scheduler.ncores, callback_timeout=CONNECT_S))
    except (OSError, TimeoutError, ValueError) as error:
        raise _ClusterGoneError(_DISAPPEARED) from error


class _Alive:
    """Checks from time to time whether the cluster is there, and whether answers can still be expected from it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._next_s = self._worker_seen_s = self._answer_s = time.monotonic()
        self._pauses_s: list[float] = []  # before each answer; until the first, nobody knows how long a rank takes

    def answered(self) -> None:
        """An answer has come."""
        now_s = time.monotonic()
        self._pauses_s.append(now_s - self._answer_s)
        self._answer_s = now_s

    def check(self) -> None:
        """Raises _ClusterGoneError if no more answers are to be expected."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + _PROBE_EVERY_S
        if _has_a_worker(self._client):
            self._worker_seen_s = now_s
        if now_s - self._worker_seen_s > WITHOUT_WORKERS_S:
            raise _ClusterGoneError(_DISAPPEARED)
        quiet_s = now_s - self._answer_s
        if self._pauses_s and quiet_s > max(QUIET_S, QUIET_TIMES * max(self._pauses_s)):
            raise _ClusterGoneError(f"The Dask cluster gave no answer for {quiet_s:.0f} s")


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    """A client that prints nothing on stderr. Raises ConfigError if there is no scheduler at the address."""
    try:
        import dask
        from distributed import Client
        from distributed.utils import LoopRunner, sync
    except ImportError:
        raise ConfigError("--scheduler needs Dask; run pip install 'traceopt-profiler[distributed]'") from None
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with dask.config.set({"distributed.comm.timeouts.connect": CONNECT_S}):
            runner = LoopRunner()
            runner.start()
            try:
                sync(runner.loop, _greet, address)
                client = Client(address, timeout=CONNECT_S, set_as_default=False, loop=runner.loop)
            except (OSError, TimeoutError, ValueError) as error:
                runner.stop()
                why = one_line(str(error)) or "it does not answer"
                raise ConfigError(f"no Dask scheduler at {address}: {why}") from error
            try:
                yield client
            finally:
                # Closing fails in many ways if the scheduler has just gone. The answers are there by then.
                with suppress(Exception):
                    client.close(timeout=CONNECT_S)
                runner.stop()
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


async def _greet(address: str) -> None:
    """Connects once, because a client waits forever for a port that accepts connections and says nothing.

    Raises TimeoutError, OSError or ValueError.
    """
    from distributed.comm import connect
    from distributed.security import Security

    arguments = Security().get_connection_args("client")
    comm = await asyncio.wait_for(connect(address, timeout=CONNECT_S, **arguments), CONNECT_S)
    await comm.close()


def _portable(task: RankTask) -> RankTask:
    """The task with an absolute path of the rules folder."""
    folder = task.options.rules_dir
    if folder is None:
        return task
    return replace(task, options=replace(task.options, rules_dir=str(Path(folder).absolute())))


def _work(task: RankTask, expected: str) -> bytes:
    if program(loaded(task.options)) != expected:
        raise ConfigError("a worker of the Dask cluster has different traceopt code or rules; install the same there")
    return analyze_rank(task)


def _as_answer(answer: Any) -> Answer:
    if isinstance(answer, ImportError):
        return ConfigError(f"a worker of the Dask cluster cannot load traceopt: {one_line(str(answer))}")
    return answer if isinstance(answer, (bytes, Exception)) else RuntimeError(one_line(repr(answer)))
