"""The DataLoaders of a run: settings, number of iterations, and how long a worker takes to build a batch."""

from __future__ import annotations

import glob
import itertools
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from multiprocessing.process import parent_process
from typing import Any

from ...or_none import or_none
from ...status import write_json
from ..batch_size import describe_batch
from ..cores import CoreWait
from ..inventory import MOST, class_name, describe_loader
from ..values.data_columns import describe_columns
from .hand_over import measure_hand_over

FLUSH_S = 1.0
MOST_STARTS = 1000  # described per loader
SIZED = 3  # batches of a loader without workers whose size is taken; the ledger's medians leave these steps out


class LoaderNotes:
    """Filled while the script iterates its loaders. All times are microseconds.

    A loader here is all DataLoaders of one kind: a script may construct it anew for each epoch. `objects` counts them.
    `updates` counts the backward passes and optimizer updates that followed batches of the loader: the loader with the
    most feeds the training. `batch` is the size of its largest batch so far, `hand_over` what such a batch would cost
    if a worker sent it; both only for loaders without workers.

    `in_memory` is what values/data_columns.py says of its data set, or null; missing if nobody looked.

    `together` is how many iterators were read in turn: more than one, if several such loaders feed one loop.

    `fetch_us` and `fetch_cpu_us` are the wall time and CPU time of the training process in the loader, over all
    `batches`. `starts` has an entry for each time that worker processes were started: the step, how long it took, the
    wait for the first batch, and the end of the last one (when the workers are stopped, unless they persist).
    """

    def __init__(self) -> None:
        self._rows: dict[int, dict[str, Any]] = {}
        self._objects: weakref.WeakSet[Any] = weakref.WeakSet()
        self._latest: dict[int, weakref.ref[Any]] = {}
        self._fresh: dict[int, dict[str, Any]] = {}  # by loader: its latest start, until the first batch arrives
        self._unused: dict[int, set[int]] = {}  # by thread: loaders whose batches no update has followed yet
        self._workers: dict[int, int] = {}  # loader of each worker process
        self._read: dict[
            int, list[list[int]]
        ] = {}  # by loader: of each iterator, the batches read before and at its end
        self._updates = 0  # of the run, whatever fed them

    def iterated(self, loader: Any) -> int:
        """A new iterator was created. Workers that do not persist are started again.

        A library's own loader need not have all attributes of a DataLoader (fastai's has no sampler).

        Returns a key for the loader, which stays the same if it is created again for the next epoch.
        """
        dataset, sampler, batch_size = (getattr(loader, name, None) for name in ("dataset", "sampler", "batch_size"))
        length = or_none(len, sampler)  # the sampler has already asked a map-style dataset; others have none
        key = hash((type(dataset), length, type(sampler), batch_size))
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= MOST:
                return key
            counts = {"iterators": 0, "objects": 0, "batches": 0, "updates": 0, "fetch_us": 0.0, "fetch_cpu_us": 0.0}
            row = describe_loader(None, loader) | counts | {"starts": [], "batch": None, "hand_over": None}
            self._rows[key] = row
        row["iterators"] += 1
        read = self._read.setdefault(key, [])
        if len(read) < MOST_STARTS:
            read.append([row["batches"]] * 2)
        if key not in self._latest or self._latest[key]() is not loader:
            row["objects"] += self._is_new(key, loader)
        return key

    def look_into(self, key: int, loader: Any) -> None:
        """Takes batches from the data set of a loader, once for each key. One that fails is None."""
        row = self._rows.get(key)
        if row is not None and "in_memory" not in row:
            row["in_memory"] = or_none(describe_columns, sys.modules["torch"], loader)

    def collate(self, key: int) -> Any:
        """The function of the latest such loader that joins items to a batch; None if it no longer exists."""
        reference = self._latest.get(key)
        return getattr(reference(), "collate_fn", None) if reference is not None else None

    def iterator(self, key: int) -> int:
        """The number of the latest iterator of a loader, from 1."""
        return self._rows[key]["iterators"] if key in self._rows else 0

    def _is_new(self, key: int, loader: Any) -> bool:
        """False also for an object that has no weak references, as a library's own loader may be."""
        known = loader in self._objects
        try:
            self._latest[key] = weakref.ref(loader)
            self._objects.add(loader)
        except TypeError:
            return False
        return not known

    def started(self, key: int, step: int, seconds: float, workers: Iterable[int]) -> None:
        """The latest iterator has started its workers, processes with these numbers."""
        row = self._rows.get(key)
        self._workers.update(dict.fromkeys(workers, key))
        if row is not None and len(row["starts"]) < MOST_STARTS:
            start = {"step": step, "us": round(seconds * 1e6, 1), "first_batch_us": None, "end_us": None}
            row["starts"].append(start)
            self._fresh[key] = start

    def fetched(self, key: int, seconds: float, cpu_seconds: float, ended: bool, iterator: int = 0) -> None:
        """The script asked an iterator of this number for a batch; `ended`: there was none left."""
        unused = self._unused.setdefault(threading.get_ident(), set())
        (unused.discard if ended else unused.add)(key)  # a loader that was read to its end was an evaluation's
        row = self._rows.get(key)
        if row is None:
            return
        if not ended:
            row["batches"] += 1
            row["fetch_us"] += seconds * 1e6
            row["fetch_cpu_us"] += cpu_seconds * 1e6
            if 0 < iterator <= len(self._read[key]):
                self._read[key][iterator - 1][1] = row["batches"]
        start = self._fresh.pop(key, None)
        if start is not None:
            start["first_batch_us"] = round(seconds * 1e6, 1)
        elif ended and row["starts"] and len(row["starts"]) == row["iterators"]:
            row["starts"][-1]["end_us"] = round(seconds * 1e6, 1)

    def sized(self, torch: Any, key: int, batch: Any) -> None:
        """The script got this batch."""
        row = self._rows.get(key)
        if row is not None and not row["num_workers"] and row["batches"] < SIZED:
            size = describe_batch(torch, batch)
            row["batch"] = max(filter(None, (row["batch"], size)), key=lambda size: sum(size.values()), default=None)

    def updated(self) -> None:
        """A backward pass has ended in this thread, or an optimizer has updated the parameters. A thread that never
        reads batches itself gets those of the others.
        """
        self._updates += 1
        own = self._unused.get(threading.get_ident())
        for key in set().union(*self._unused.values()) if own is None else own:
            row = self._rows.get(key)
            if row is not None:
                row["updates"] += 1
        for unused in self._unused.values():
            unused.clear()

    def measure(self) -> None:
        """Measures the hand-over of a batch of the loader that feeds the training, if it has no workers."""
        row = max(self._rows.values(), key=lambda row: (row["updates"], row["batches"]), default=None)
        if row is not None and row["batch"] is not None and (row["updates"] or not self._updates):
            row["hand_over"] = measure_hand_over(**row["batch"])

    def restarted(self) -> None:
        """Steps count from 0 again."""
        for row in self._rows.values():
            for start in row["starts"]:
                start["step"] = 0

    def document(self, control: str | None) -> dict[str, Any]:
        """Without iterated loaders the key "loaders" is missing; those of the inventory are then used."""
        found: dict[str, Any] = {"updates": self._updates}
        if self._rows:
            found["loaders"] = [row | {"together": _together(self._read[key])} for key, row in self._rows.items()]
        if control is not None:
            numbers = {key: number for number, key in enumerate(self._rows)}
            found["loader_workers"] = [
                {**row, "loader": numbers.get(self._workers.get(pid, 0))} for pid, row in _worker_times(control)
            ]
        return found


class WorkerClock:
    """Measures, inside a DataLoader worker, the wall and CPU time of its batches, and how long it had no core.

    Writes `worker.{parent}.{pid}.json` into the control folder, at most once a second after the first few batches.
    """

    def __init__(self, control: str) -> None:
        self._control = control
        self._pid = 0

    def in_worker(self) -> bool:
        return _worker_info() is not None

    def built(self, seconds: float, cpu_seconds: float, dataset: Any) -> None:
        """A batch was built in this worker."""
        now = time.perf_counter()
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._batches, self._seconds, self._cpu_seconds, self._longest_s = 0, 0.0, 0.0, 0.0
            self._began = self._flushed = now - seconds
            self._core_wait = CoreWait()
        self._batches += 1
        self._seconds += seconds
        self._cpu_seconds += cpu_seconds
        self._longest_s = max(self._longest_s, seconds)
        if now - self._flushed > FLUSH_S or self._batches & (self._batches - 1) == 0:
            self._flushed = now
            self._flush(dataset, now)

    def _flush(self, dataset: Any, now: float) -> None:
        info = _worker_info()
        row = {
            "worker": info.id,
            "workers": info.num_workers,
            "dataset": class_name(dataset).replace("__mp_main__.", "__main__."),  # of workers that are not forked
            "batches": self._batches,
            "batch_us": round(self._seconds / self._batches * 1e6, 1),
            "longest_batch_us": round(self._longest_s * 1e6, 1),
            "batch_cpu_us": round(self._cpu_seconds / self._batches * 1e6, 1),
            "core_wait": self._core_wait.document(),
            "cpu_us": round(time.process_time() * 1e6),
            "wall_us": round((now - self._began) * 1e6),
        }
        parent = parent_process()  # os.getppid() may be the fork server
        path = os.path.join(self._control, f"worker.{parent.pid if parent else 0}.{self._pid}.json")
        write_json(path, row)


def _together(read: list[list[int]]) -> int:
    """The most iterators that were all begun, and all read again later."""
    changes = sorted((at, change) for begin, end in read if begin < end for at, change in ((begin, 1), (end, -1)))
    return max(itertools.accumulate(change for _, change in changes), default=1)


def _worker_info() -> Any:
    """None outside of a DataLoader worker."""
    return getattr(sys.modules.get("torch.utils.data._utils.worker"), "_worker_info", None)


def _worker_times(control: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The number of each worker process, and what it wrote."""
    for path in sorted(glob.glob(os.path.join(glob.escape(control), f"worker.{os.getpid()}.*.json"))):
        try:
            with open(path, encoding="utf-8") as file:
                yield int(path.split(".")[-2]), json.load(file)
        except (OSError, ValueError):
            continue
