"""What is noted about loaders: which one feeds the training, the size of its batches, and what workers would cost."""

from __future__ import annotations

import json
import multiprocessing
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from traceopt.capture.metadata.batch_size import describe_batch
from traceopt.capture.metadata.loading import hand_over, loaders
from traceopt.capture.metadata.loading.loaders import LoaderNotes, WorkerClock


def loader(batch_size: int, workers: int = 0) -> Any:
    return SimpleNamespace(
        dataset=[1], sampler=[1], batch_size=batch_size, collate_fn=len, num_workers=workers, prefetch_factor=None,
        persistent_workers=False, pin_memory=False, drop_last=False, multiprocessing_context=None,
    )  # fmt: skip


class Script:
    """Reads batches from a training and an evaluation loader, and trains."""

    def __init__(self) -> None:
        self.notes = LoaderNotes()
        self.training, self.evaluation = (self.notes.iterated(loader(size)) for size in (8, 10))

    def read(self, key: int, batches: int = 1, *, to_the_end: bool = False) -> None:
        for _ in range(batches):
            self.notes.fetched(key, 0.001, 0.001, ended=False)
        if to_the_end:
            self.notes.fetched(key, 0.001, 0.001, ended=True)

    def train(self, steps: int, reads: int = 1) -> None:
        for _ in range(steps):
            self.read(self.training, reads)
            self.notes.updated()  # backward
            self.notes.updated()  # optimizer

    @property
    def updates(self) -> list[int]:
        return [row["updates"] for row in self.notes.document(None)["loaders"]]


@pytest.mark.torch
def test_loaders_that_are_constructed_anew_are_counted() -> None:
    import torch

    notes = LoaderNotes()
    kept, *others = (torch.utils.data.DataLoader([1, 2]) for _ in range(3))  # type: ignore[var-annotated, arg-type]
    for one in (kept, kept, *others, kept):
        notes.iterated(one)
    [row] = notes.document(None)["loaders"]
    assert (row["iterators"], row["objects"]) == (5, 3)


def test_an_evaluation_that_reads_more_batches_feeds_no_update() -> None:
    script = Script()
    script.read(script.evaluation, 50, to_the_end=True)
    script.train(4)
    script.read(script.evaluation, 50, to_the_end=True)
    script.train(2, reads=3)
    assert script.updates == [6, 0]
    assert script.notes.document(None)["updates"] == 12


def test_an_evaluation_that_stops_early_counts_less_than_the_training() -> None:
    script = Script()
    for _ in range(3):
        script.train(4)
        script.read(script.evaluation, 50)
    script.train(1)
    assert script.updates == [13, 3]


def test_batches_made_by_hand_come_from_no_loader() -> None:
    script = Script()
    for _ in range(3):
        script.read(script.evaluation, 50, to_the_end=True)
        script.train(4, reads=0)
    assert script.updates == [0, 0]
    assert script.notes.document(None)["updates"] == 24


def in_thread(function: Callable[[], None]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_an_evaluation_in_another_thread_feeds_nothing() -> None:
    script = Script()
    script.train(1)
    for _ in range(3):
        in_thread(lambda: script.read(script.evaluation))
        script.train(1)
    assert script.updates == [4, 0]


def test_a_thread_may_read_for_the_one_that_trains() -> None:
    script = Script()
    for _ in range(3):
        in_thread(lambda: script.read(script.training))
        script.notes.updated()
    assert script.updates == [3, 0]


class Record:
    """A class of the script's own that holds tensors."""

    def __init__(self, *tensors: Any) -> None:
        self.tensors = tensors


class Unpicklable:
    def __reduce__(self) -> str:
        raise RuntimeError("not me")


@pytest.mark.torch
def test_the_size_of_a_batch_counts_what_a_queue_would_carry() -> None:
    import torch

    batch = {"a": torch.zeros(4, 8), "b": [Record(torch.zeros(2, dtype=torch.int64))], "c": np.zeros(5_000, np.uint8)}
    size = describe_batch(torch, batch)
    assert size is not None
    assert (size["tensors"], size["tensor_bytes"]) == (2, 4 * 8 * 4 + 2 * 8)
    assert 5_000 < size["pickled_bytes"] < 6_000


@pytest.mark.torch
@pytest.mark.parametrize("batch", [Unpicklable(), [lambda: None], (one for one in "ab")])
def test_a_batch_that_no_worker_could_send_has_no_size(batch: object) -> None:
    import torch

    assert describe_batch(torch, batch) is None


@pytest.mark.torch
def test_the_largest_of_the_first_batches_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(loaders, "measure_hand_over", lambda **size: size)
    script = Script()
    for elements in (4, 16, 8, 1_000_000):
        script.notes.sized(torch, script.training, torch.zeros(elements))
        script.train(1)
    script.notes.measure()
    training, evaluation = script.notes.document(None)["loaders"]
    assert training["hand_over"] == training["batch"]
    assert training["batch"]["tensor_bytes"] == 16 * 4
    assert (evaluation["batch"], evaluation["hand_over"]) == (None, None)


@pytest.mark.torch
def test_a_loader_that_feeds_no_update_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(loaders, "measure_hand_over", lambda **_: pytest.fail("measured"))
    script = Script()
    script.notes.sized(torch, script.evaluation, torch.zeros(4))
    script.read(script.evaluation, 3, to_the_end=True)
    script.train(2, reads=0)
    script.notes.measure()


@pytest.mark.skipif(sys.platform != "linux", reason="memfd")
def test_the_hand_over_is_measured_in_processes_of_its_own() -> None:
    measured = hand_over.measure_hand_over(tensors=2, tensor_bytes=20_000, pickled_bytes=100)
    if measured is not None:  # on a busy machine it may have taken too long
        assert {"us", "worker_us"} <= set(measured) <= {"us", "worker_us", "slowdown"}
        assert min(measured.values()) > 0


@pytest.mark.parametrize(("most", "known"), [(0.0, (1e-3, 1.5e-3)), (1.1, None)], ids=["two cores", "no two cores"])
def test_computing_is_timed_alone_and_beside_another_process(
    most: float, known: tuple[float, float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([(1e-3, 1.0), (1.5e-3, 1.0)])
    monkeypatch.setattr(hand_over, "_timed", lambda _: next(times))
    monkeypatch.setattr(hand_over, "ON_A_CORE", most)
    assert hand_over._alone_and_beside(multiprocessing.get_context("spawn")) == known


@pytest.mark.parametrize(
    ("attempts", "slowdown"),
    [
        ([(1.0, 1.5), (1.1, 1.5), (1.0, 1.6)], 1.5),
        ([(1.4, 1.5), (1.0, 2.0), None], 1.5),  # something else slowed the first time of one and the second of another
        ([(1.0, 0.9)], 1.0),
        ([None, None], None),
    ],
)
def test_the_shortest_times_say_how_much_slower_it_is_beside_another_process(
    attempts: list[tuple[float, float] | None], slowdown: float | None
) -> None:
    assert hand_over._slowdown(attempts) == slowdown


@pytest.mark.parametrize("failure", [{"TIMEOUT_S": 0.0}, {"PROGRAM": "/none"}])
def test_what_cannot_be_measured_is_unknown(failure: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in failure.items():
        monkeypatch.setattr(hand_over, name, value)
    assert hand_over.measure_hand_over(tensors=1, tensor_bytes=4, pickled_bytes=4) is None


def test_workers_belong_to_the_loader_that_started_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is not forked calls the script's classes __mp_main__."""
    items = type("Items", (), {"__module__": "__mp_main__"})
    worker = SimpleNamespace(_worker_info=SimpleNamespace(id=0, num_workers=2))
    monkeypatch.setitem(sys.modules, "torch.utils.data._utils.worker", worker)  # type: ignore[arg-type]
    notes = LoaderNotes()
    for number, key in enumerate([notes.iterated(loader(size, 2)) for size in (8, 10)]):
        notes.started(key, 0, 0.01, [100 + number])
        monkeypatch.setattr(loaders.os, "getpid", lambda number=number: 100 + number)
        WorkerClock(str(tmp_path)).built(0.1 * (1 + number), 0.01, items())
    monkeypatch.undo()
    for path in tmp_path.iterdir():  # of a parent, which this process is not
        path.rename(tmp_path / f"worker.{loaders.os.getpid()}.{path.name.split('.')[2]}.json")
    rows = notes.document(str(tmp_path))["loader_workers"]
    assert [(row["loader"], row["dataset"], row["batch_us"]) for row in rows] == [
        (0, "__main__.Items", 100_000.0), (1, "__main__.Items", 200_000.0),
    ]  # fmt: skip
    assert json.dumps(rows)


@pytest.mark.parametrize(
    ("read", "together"),
    [
        ("1 2 1 2 1 2", 2),  # two loaders in turn
        ("1 1 2 2 3 3", 1),  # one after the other
        ("1 2 2 1 3 3 1", 2),  # an evaluation that begins again in the midst of the training
        ("1", 1),
    ],
)
def test_iterators_that_are_read_in_turn(read: str, together: int) -> None:
    """`read`: the number of the iterator that gives each batch."""
    notes, key = LoaderNotes(), 0
    for number in map(int, read.split()):
        key = notes.iterated(loader(8)) if number > notes.iterator(key) else key
        notes.fetched(key, 0.001, 0.001, ended=False, iterator=number)
    [row] = notes.document(None)["loaders"]
    assert row["together"] == together
