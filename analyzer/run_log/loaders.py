"""The DataLoaders that `traceopt run` observed: settings, worker starts, cost of building a batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from traceopt.analyzer.run_log.constructions import Construction, read_construction
from traceopt.analyzer.tables.json_values import MOST_US, amount, flag, rows, table, time_ns, whole, word

MOST_WORKERS = 100_000
MOST_LOADERS = 100
MOST_SLOWDOWN = 1_000.0

_Key = int | tuple[str | None, int | None] | None  # number of the loader; else dataset class and number of workers


class WorkerStart(Struct, frozen=True):
    """One start of worker processes, in step `step`: how long it took, and the wait for the first batch.

    `end_ns` is how long the loader took to shut down after the last batch; None if it had not ended.
    """

    step: int
    start_ns: int
    first_batch_ns: int | None
    end_ns: int | None


class Build(Struct, frozen=True):
    """Mean time that one process takes to build a batch, ns, without its longest one: in a short run that is the first,
    which loads code and data. `cpu_ns` is the CPU time in it, `core_wait_ns` the time that it was ready to run but no
    core was free. None if not recorded.
    """

    batch_ns: float
    cpu_ns: float | None
    core_wait_ns: float | None

    @property
    def computing_share(self) -> float | None:
        """CPU time as a share of the time to build a batch when a core is free; the rest waits for storage or the
        network.
        """
        if self.cpu_ns is None:
            return None
        free_ns = self.batch_ns - (self.core_wait_ns or 0.0)
        return min(1.0, self.cpu_ns / free_ns) if free_ns > 0 else 1.0

    @property
    def core_wait_share(self) -> float:
        """The wait for a core as a share of the time to build a batch. Threads of the process may wait while another
        one computes: what the CPU time leaves is the limit.
        """
        if not self.batch_ns:
            return 0.0
        return max(0.0, min(self.core_wait_ns or 0.0, self.batch_ns - (self.cpu_ns or 0.0))) / self.batch_ns


class HandOver(Struct, frozen=True):
    """What a batch costs, ns, if a worker sends it: the training process, to receive it when it is ready, and the
    worker, to put it into shared memory. Measured on the machine of the run.

    `slowdown`: how many times as long computing took there while another process computed; None: not measured.
    """

    receive_ns: float
    send_ns: float
    slowdown: float | None = None


class InMemory(Struct, frozen=True):
    """A data set that holds its items in tensors or arrays with a row for each. The loader takes one at a time.

    `batch_ns` is what the rows of a batch take if they are taken at once, as measured. `plain`: nothing in the loader
    is the script's own, so it would give the same batches.
    """

    plain: bool
    batch_ns: float
    shuffled: bool = False
    drop_last: bool = False


class OpenedFiles(Struct, frozen=True):
    """What a line of the data set opened for `batches` batches: `opens` in all. Of a file that it opened several times
    for a batch, `files` counts one.
    """

    file: str
    line: int
    opens: int
    files: int
    batches: int


class Loader(Struct, frozen=True):
    """None stands for unknown. `build` is measured in the process that builds batches: a worker, or the training
    process. `iterators` counts how often the script began to read it; so many of them as `together` says are read in
    turn. `objects` counts the DataLoaders that were constructed with these settings. `updates` counts the backward
    passes and optimizer updates that its batches fed.

    `starts` has an entry for each time that workers were started.
    """

    num_workers: int | None = None
    prefetch_factor: int | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None
    batch_size: int | None = None
    batches: int | None = None  # read by the training process so far
    starts: tuple[WorkerStart, ...] = ()
    build: Build | None = None
    iterators: int | None = None
    objects: int | None = None
    updates: int | None = None
    hand_over: HandOver | None = None
    built: Construction | None = None
    together: int = 1
    in_memory: InMemory | None = None
    iterable: bool = False  # each worker of an IterableDataset reads all of the data

    @property
    def batches_per_epoch(self) -> float | None:
        """Mean number of batches that are read before the loader begins again; None if it never did."""
        return self.batches / self.iterators if self.batches and self.iterators and self._begins_again else None

    @property
    def rebuilt(self) -> bool:
        """Whether each epoch reads a new DataLoader, whose workers cannot persist."""
        return self._begins_again and (self.iterators or 0) <= (self.objects or 0)

    @property
    def restarts(self) -> list[tuple[WorkerStart, WorkerStart]]:
        """Each start of workers that replaces earlier ones, after the start of those."""
        return list(zip(self.starts, self.starts[self.together :], strict=False))

    @property
    def _begins_again(self) -> bool:
        return (self.iterators or 0) > self.together


def read_opened_files(value: object) -> tuple[OpenedFiles, ...]:
    found = []
    for row in rows(value):
        file = word(row.get("file"))
        line, opens, files, batches = (whole(row.get(name)) for name in ("line", "opens", "files", "batches"))
        if file and line and opens and files and batches:
            found.append(OpenedFiles(file, line, opens, files, batches))
    return tuple(found)


def read_loaders(loaders: object, workers: object, core_wait_per_cpu: float | None) -> tuple[Loader, ...]:
    """The loaders: the one that feeds most updates first, or the one with the most batches if that is not known.

    `core_wait_per_cpu` is the training thread's waiting time for a core per unit of CPU time.
    """
    times: defaultdict[_Key, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows(workers):
        number = whole(row.get("loader"))
        times[(word(row.get("dataset")), whole(row.get("workers"))) if number is None else number].append(row)
    found = [_loader(n, row, times, core_wait_per_cpu) for n, row in enumerate(rows(loaders)[:MOST_LOADERS])]
    return tuple(sorted(found, key=lambda loader: (-(loader.updates or 0), -(loader.batches or 0))))


def _loader(
    number: int, row: Mapping[str, Any], times: Mapping[_Key, list[Mapping[str, Any]]], core_wait_per_cpu: float | None
) -> Loader:
    starts = [_start(one) for one in rows(row.get("starts"))]
    batches = whole(row.get("batches"))
    num_workers, dataset = whole(row.get("num_workers"), MOST_WORKERS), word(row.get("dataset"))
    own = times.get(number) or times.get((dataset, num_workers), [])
    return Loader(
        num_workers=num_workers,
        prefetch_factor=whole(row.get("prefetch_factor")),
        pin_memory=flag(row.get("pin_memory")),
        persistent_workers=flag(row.get("persistent_workers")),
        batch_size=whole(row.get("batch_size")),
        batches=batches,
        starts=tuple(start for start in starts if start is not None),
        build=_build(own) if num_workers else _main_thread_build(row, batches, core_wait_per_cpu),
        iterators=whole(row.get("iterators")),
        objects=whole(row.get("objects")),
        updates=whole(row.get("updates")),
        hand_over=_hand_over(table(row.get("hand_over"))),
        built=read_construction(row.get("built")),
        together=max(1, whole(row.get("together")) or 1),
        in_memory=_in_memory(table(row.get("in_memory"))),
        iterable=(word(row.get("sampler")) or "").endswith("._InfiniteConstantSampler"),
    )


def _main_thread_build(row: Mapping[str, Any], batches: int | None, core_wait_per_cpu: float | None) -> Build | None:
    """Waits for a core are not counted per batch here, so the rate of the whole training thread is used."""
    fetch_us, cpu_us = (amount(row.get(name), MOST_US) for name in ("fetch_us", "fetch_cpu_us"))
    if not batches or not fetch_us:
        return None
    batch_ns, cpu_ns = fetch_us / batches * 1000, None if cpu_us is None else cpu_us / batches * 1000
    wait_ns = None if cpu_ns is None or core_wait_per_cpu is None else min(batch_ns, cpu_ns * core_wait_per_cpu)
    return Build(batch_ns, cpu_ns, wait_ns)


def _hand_over(row: Mapping[str, Any]) -> HandOver | None:
    receive_us, send_us = amount(row.get("us"), MOST_US), amount(row.get("worker_us"), MOST_US)
    if receive_us is None or send_us is None:
        return None
    slowdown = amount(row.get("slowdown"), MOST_SLOWDOWN)
    return HandOver(receive_us * 1000, send_us * 1000, max(1.0, slowdown) if slowdown else None)


def _in_memory(row: Mapping[str, Any]) -> InMemory | None:
    batch_us, plain = amount(row.get("batch_us"), MOST_US), flag(row.get("plain"))
    if batch_us is None or plain is None:
        return None
    return InMemory(plain, batch_us * 1000, bool(flag(row.get("shuffled"))), bool(flag(row.get("drop_last"))))


def _start(row: Mapping[str, Any]) -> WorkerStart | None:
    step, start_ns = whole(row.get("step")), time_ns(row.get("us"))
    if step is None or start_ns is None:
        return None
    return WorkerStart(step, start_ns, time_ns(row.get("first_batch_us")), time_ns(row.get("end_us")))


def _build(workers: list[Mapping[str, Any]]) -> Build | None:
    """Mean over the processes, weighted by batches. A worker waits for a core only while it has a batch to build."""
    batches, usual, built_us, cpu_us, waited_us = 0, 0, 0.0, 0.0, 0.0
    for row in workers:
        count, batch_us = whole(row.get("batches"), 10**9), amount(row.get("batch_us"), MOST_US)
        if not count or batch_us is None:
            continue
        longest_us = amount(row.get("longest_batch_us"), MOST_US) if count > 1 else None
        batches += count
        usual += count - (longest_us is not None)
        built_us += max(0.0, count * batch_us - (longest_us or 0.0))
        cpu_us += count * (amount(row.get("batch_cpu_us"), MOST_US) or 0.0)
        waited_us += amount(table(row.get("core_wait")).get("us"), MOST_US) or 0.0
    if not built_us:
        return None
    batch_ns, cpu_ns, wait_ns = 1000 * built_us / usual, 1000 * cpu_us / batches, 1000 * waited_us / batches
    return Build(batch_ns, cpu_ns or None, min(wait_ns, batch_ns))
