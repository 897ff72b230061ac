"""Ranks on a Dask cluster: each is one task, and what comes back is small.

Dask gives the task of a worker that died to another one. Where it gives up, because several died of the same task, the
rank is tried once more when nothing else runs. Where the cluster itself goes away, this machine reads the ranks that
are left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from traceopt.errors import ConfigError, InputError, one_line
from traceopt.workers.answers import WORKER_DIED, Answer, Answers, Executor
from traceopt.workers.program_hash import program
from traceopt.workers.progress_line import Pace
from traceopt.workers.rank_analysis import analyze_rank
from traceopt.workers.rank_task import RankTask, loaded

if TYPE_CHECKING:
    from distributed import Client

CONNECT_S = 10.0
WITHOUT_WORKERS_S = 60.0  # so long a cluster may be without one: a worker may be starting
_PROBE_EVERY_S = 1.0
_POLL_S = 0.02


class _ClusterGoneError(Exception):
    """The scheduler does not answer, or there has been no worker for too long."""


class DaskCluster(Struct):
    """`instead` reads what is left when the cluster is gone."""

    address: str
    instead: Executor
    notes: list[str] = field(default_factory=list)

    def run(self, tasks: Sequence[RankTask], pace: Pace) -> Answers:
        """Raises ConfigError when there is no cluster at the address, or it has another program."""
        left = set(range(len(tasks)))
        with _connected(self.address) as client:
            self._wait_for_a_worker(client)
            try:
                for index, answer in self._answers(client, [_portable(task) for task in tasks]):
                    left.remove(index)
                    yield index, answer
            except _ClusterGoneError:
                pass
        if left:
            places = sorted(left)
            self.notes.append(f"The Dask cluster went away: this machine read {len(left):,} of {len(tasks):,} ranks.")
            for index, answer in self.instead.run([tasks[place] for place in places], pace):
                yield places[index], answer

    def _wait_for_a_worker(self, client: Client) -> None:
        try:
            client.wait_for_workers(1, timeout=WITHOUT_WORKERS_S)
        except TimeoutError:
            raise ConfigError(
                f"the Dask cluster at {self.address} has no worker after {WITHOUT_WORKERS_S:.0f} s"
            ) from None

    def _answers(self, client: Client, tasks: Sequence[RankTask]) -> Iterator[tuple[int, Answer]]:
        """Raises _ClusterGoneError."""
        lost = yield from self._round(client, dict(enumerate(tasks)))
        for index in lost:
            if (yield from self._round(client, {index: tasks[index]})):
                yield index, InputError(WORKER_DIED.format(tasks[index].label))

    def _round(self, client: Client, tasks: Mapping[int, RankTask]) -> Generator[tuple[int, Answer], None, list[int]]:
        """All of these at a time; returns those whose workers died. Raises _ClusterGoneError."""
        from distributed import KilledWorker, as_completed

        lost: list[int] = []
        expected = program(loaded(next(iter(tasks.values())).options))
        flying = {client.submit(_work, task, expected, pure=False): index for index, task in tasks.items()}
        completed = as_completed(list(flying), loop=client.loop)
        alive = _Alive(client)
        while flying:
            for future in completed.next_batch(block=False):
                try:
                    error = future.exception(timeout=CONNECT_S)
                    answer = error if error is not None else future.result(timeout=CONNECT_S)
                except TimeoutError:  # the worker that has it is gone: it is made again
                    completed.add(future)
                    continue
                except (CancelledError, OSError) as gone:
                    raise _ClusterGoneError from gone
                index = flying.pop(future)
                if isinstance(answer, KilledWorker):
                    lost.append(index)
                else:
                    yield index, _told(answer)
            alive.check()
            time.sleep(_POLL_S)
        return lost


class _Alive:
    """Watches a cluster from time to time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._next_s = self._worker_seen_s = time.monotonic()

    def check(self) -> None:
        """Raises _ClusterGoneError when nothing more is to be hoped for."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + _PROBE_EVERY_S
        try:
            if self._client.nthreads():
                self._worker_seen_s = now_s
        except (OSError, TimeoutError, ValueError) as error:
            raise _ClusterGoneError from error
        if now_s - self._worker_seen_s > WITHOUT_WORKERS_S:
            raise _ClusterGoneError


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    """A client that says nothing on stderr. Raises ConfigError when there is no scheduler at the address."""
    try:
        import dask
        from distributed import Client
    except ImportError:
        raise ConfigError("--scheduler needs Dask: pip install 'traceopt[distributed]'") from None
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with dask.config.set({"distributed.comm.timeouts.connect": CONNECT_S}):
            try:
                client = Client(address, timeout=CONNECT_S, set_as_default=False)
            except (OSError, TimeoutError, ValueError) as error:
                raise ConfigError(f"no Dask scheduler at {address}: {one_line(str(error))}") from error
            try:
                yield client
            finally:
                with suppress(OSError, TimeoutError):
                    client.close(timeout=CONNECT_S)
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _portable(task: RankTask) -> RankTask:
    """With the folder of rules as it is found from any place."""
    folder = task.options.rules_dir
    if folder is None:
        return task
    return replace(task, options=replace(task.options, rules_dir=str(Path(folder).absolute())))


def _work(task: RankTask, expected: str) -> bytes:
    if program(loaded(task.options)) != expected:
        raise ConfigError("a worker of the Dask cluster has another traceopt, or other rules: install the same there")
    return analyze_rank(task)


def _told(answer: Any) -> Answer:
    if isinstance(answer, ImportError):
        return ConfigError(f"a worker of the Dask cluster cannot load traceopt: {one_line(str(answer))}")
    return answer if isinstance(answer, (bytes, Exception)) else RuntimeError(one_line(repr(answer)))
