"""What the ledger counts besides steps: garbage collection, waiting for a core, and starts of loader workers."""

from __future__ import annotations

import gc
import os
import sys
from collections import UserDict
from collections.abc import Iterator
from math import prod
from types import SimpleNamespace
from typing import Any

import pytest

from traceopt.capture.metadata import cores, environment, step_ledger
from traceopt.capture.metadata.batch_size import samples_and_elements
from traceopt.capture.metadata.loading.loaders import LoaderNotes
from traceopt.capture.metadata.step_ledger import LedgerWriter


@pytest.fixture
def ledger() -> Iterator[LedgerWriter]:
    ledger = LedgerWriter(lambda: None)
    ledger.watch_gc()
    gc.disable()
    yield ledger
    gc.enable()
    ledger.unwatch_gc()


def test_nothing_is_called_inside_the_range_of_a_collection() -> None:
    """Such a call would look like one of the function that the collector interrupts, with a line of this program."""
    inside = list[str]()
    marks = SimpleNamespace(__enter__=lambda: sys.setprofile(note), __exit__=lambda *_: sys.setprofile(None))

    def note(_: Any, event: str, called: Any) -> None:
        if event == "c_call" and inside[-1:] != ["end"]:
            inside.append("end" if called is sys.setprofile else called.__name__)

    ledger = LedgerWriter(lambda: marks)
    ledger._gc("start", {})
    sys.setprofile(None)
    assert inside == ["end"]


def end_step(ledger: LedgerWriter) -> None:
    ledger.close_step()
    ledger.open_step()


def test_collections_belong_to_the_step_they_stop(ledger: LedgerWriter) -> None:
    end_step(ledger)  # everything before the end of the first step is the start of the program
    end_step(ledger)
    gc.collect()
    end_step(ledger)
    gc.collect(0)
    ledger.close_step()
    gc.collect()  # while the profiler is working
    ledger.open_step()
    end_step(ledger)
    steps_us = ledger.document()["gc_us"]
    assert [us > 0 for us in steps_us] == [False, False, True, True, False]
    counted = ledger.collections()
    assert (counted["collections"], counted["full_collections"]) == (2, 1)
    assert counted["us"] == pytest.approx(sum(steps_us), abs=0.2)
    assert counted["full_us"] == pytest.approx(steps_us[2], abs=0.2)


class Tensor:
    """What the ledger asks of a tensor."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return prod(self.shape)


@pytest.mark.parametrize(
    ("batch", "seen"),
    [
        (Tensor(8, 128), (8, 1024)),
        ({"labels": Tensor(8), "input_ids": Tensor(8, 128)}, (8, 1024)),
        (UserDict(input_ids=Tensor(4, 7)), (4, 28)),
        ((Tensor(2, 3, 4), [Tensor(16), "text", None]), (2, 24)),
        ("text", (0, 0)),
        (Tensor(), (0, 0)),
        ([], (0, 0)),
    ],
)
def test_the_largest_tensor_of_a_batch_counts(batch: Any, seen: tuple[int, int]) -> None:
    assert samples_and_elements(SimpleNamespace(Tensor=Tensor), batch) == seen


def test_batches_that_lead_in_a_circle_end() -> None:
    circle: list[Any] = [Tensor(2, 2)]
    circle.append(circle)
    assert samples_and_elements(SimpleNamespace(Tensor=Tensor), circle) == (2, 4)


def test_batches_are_kept_if_their_sizes_differ(ledger: LedgerWriter) -> None:
    for step in range(8):
        for _ in range(2):
            ledger.got_batch(4, 4 * (100 + step))
        end_step(ledger)
    ledger.evaluates()
    ledger.got_batch(1_000, 1_000_000)
    document = ledger.document()
    assert document["elements"] == [8 * (100 + step) for step in range(8)]
    assert "samples" not in document


def test_the_time_before_the_first_backward_pass_has_no_evaluation_and_no_save(
    ledger: LedgerWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(step_ledger.time, "perf_counter", lambda: now[0])  # of evaluations, too
    ledger.reset()
    end_step(ledger)
    ledger.evaluates()
    now[0] += 3.0
    ledger.evaluated()
    now[0] += 4.0
    ledger.saved(4.0)
    with ledger.own_work():
        now[0] += 7.0
    now[0] += 0.5
    ledger.backward_begins()
    now[0] += 2.0
    ledger.backward_begins()
    end_step(ledger)
    end_step(ledger)
    assert ledger.document()["until_backward_us"] == pytest.approx([0, 0.5e6, 0])


def test_no_collections_leave_nothing(ledger: LedgerWriter) -> None:
    end_step(ledger)
    assert "gc_us" not in ledger.document()


def test_a_collection_is_a_range_of_the_trace() -> None:
    seen: list[str] = []

    class Range:
        def __enter__(self) -> None:
            seen.append("begins")

        def __exit__(self, *_: object) -> None:
            seen.append("ends")

    ledger = LedgerWriter(Range)
    ledger.watch_gc()
    gc.collect()
    ledger.unwatch_gc()
    assert seen == ["begins", "ends"]


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="this system does not count waits")
def test_waiting_for_a_core_is_counted() -> None:
    waited = cores.CoreWait().document()
    assert waited is not None
    assert 0 <= waited["us"] <= waited["wall_us"]


def test_what_is_waited_beside_a_look_at_the_counters_is_in_the_wall_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread loses its core for 50 us right before and right after each look."""
    now_us, waited_us = 0.0, 0.0

    def lose_the_core() -> None:
        nonlocal now_us, waited_us
        now_us += 50.0
        waited_us += 50.0

    def look(_: cores.CoreWait) -> tuple[float, float]:
        lose_the_core()
        seen = (1.0, waited_us)
        lose_the_core()
        return seen

    monkeypatch.setattr(cores.CoreWait, "_read_us", look)
    monkeypatch.setattr(cores, "time", SimpleNamespace(perf_counter=lambda: now_us / 1e6))
    waited = cores.CoreWait().document()
    assert waited is not None
    assert (waited["us"], waited["wall_us"]) == (100.0, 200.0)


@pytest.mark.parametrize("content", ["", "0 0 0", "what is this"])
def test_a_system_that_does_not_count_is_told_from_no_wait(content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class File(SimpleNamespace):
        def __enter__(self) -> File:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def read(self) -> bytes:
            return content.encode()

    monkeypatch.setattr(cores, "open", lambda *_: File(), raising=False)
    assert cores.CoreWait().document() is None


def loader(workers: int) -> Any:
    return SimpleNamespace(
        dataset=[1],
        sampler=[1],
        batch_size=4,
        collate_fn=len,
        num_workers=workers,
        prefetch_factor=None,
        persistent_workers=False,
        pin_memory=False,
        drop_last=False,
        multiprocessing_context=None,
    )


def test_starts_of_workers_are_kept_with_what_they_cost() -> None:
    notes = LoaderNotes()
    for step in (0, 10):
        key = notes.iterated(loader(2))
        notes.started(key, step, 0.010, [])
        notes.fetched(key, 0.030, 0.002, ended=False)
        notes.fetched(key, 0.001, 0.001, ended=False)
        notes.fetched(key, 0.005, 0.004, ended=True)
    [row] = notes.document(None)["loaders"]
    assert (row["iterators"], row["batches"]) == (2, 4)
    assert (row["fetch_us"], row["fetch_cpu_us"]) == pytest.approx((62_000, 6_000))
    cost = {"us": 10_000.0, "first_batch_us": 30_000.0, "end_us": 5_000.0}
    assert row["starts"] == [{"step": 0, **cost}, {"step": 10, **cost}]
    notes.restarted()
    assert [start["step"] for start in row["starts"]] == [0, 0]


def test_a_library_s_own_loader_may_lack_attributes() -> None:
    """As fastai's, which has no sampler; two loaders are told apart all the same."""
    notes = LoaderNotes()
    keys = [notes.iterated(SimpleNamespace(dataset=dataset, num_workers=0)) for dataset in ([1], "text")]
    assert len(set(keys)) == 2
    rows = notes.document(None)["loaders"]
    assert [row["dataset"] for row in rows] == ["builtins.list", "builtins.str"]
    assert rows[0] | {"sampler": None, "batch_size": None, "pin_memory": None} == rows[0]


def test_without_workers_nothing_starts() -> None:
    notes = LoaderNotes()
    key = notes.iterated(loader(0))
    notes.fetched(key, 0.030, 0.030, ended=False)
    notes.fetched(key, 0.0, 0.0, ended=True)
    [row] = notes.document(None)["loaders"]
    assert (row["batches"], row["starts"]) == (1, [])


def test_numa_nodes_of_the_process(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for node, numbers in ((0, (0, 1)), (1, (2, 3))):
        for number in numbers:
            (tmp_path / f"node{node}" / f"cpu{number}").mkdir(parents=True)
    monkeypatch.setattr(environment, "NODES", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2}, raising=False)
    assert environment._numa_nodes() == {"all": 2, "used": 1}


def test_a_step_far_longer_than_the_one_before_has_a_line(
    ledger: LedgerWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(step_ledger, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(step_ledger, "user_line", lambda: ("ppo.py", 41, "update"))
    ledger.reset()
    for seconds in (9.0, 0.01, 0.01, 0.5, 0.01, 0.04, 0.01, 0.5):  # the first is the start of the program
        clock[0] += seconds
        end_step(ledger)
    clock[0] += 5.0
    ledger.fetched(4.99)  # a wait for data is reported elsewhere
    end_step(ledger)
    [place] = ledger.document()["long_steps"]
    assert place == {"file": "ppo.py", "line": 41, "function": "update", "count": 2, "us": pytest.approx(1e6)}


def test_a_long_step_has_its_wait_for_a_core(ledger: LedgerWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, waited_us = [0.0], [0.0]
    monkeypatch.setattr(step_ledger, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(cores.CoreWait, "_read_us", lambda _: (1.0, waited_us[0]))
    ledger.reset()
    for seconds, waits_s in ((9.0, 1.0), (0.01, 0.0), (0.5, 0.3), (0.01, 0.002), (0.4, 0.0)):
        clock[0] += seconds
        waited_us[0] += waits_s * 1e6
        end_step(ledger)
    assert ledger.document()["long_waits"] == [(2, pytest.approx(3e5)), (4, pytest.approx(2e3))]


def test_page_faults_belong_to_the_step_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = 100
    monkeypatch.setattr(step_ledger, "_page_faults", lambda: faults)
    ledger = LedgerWriter(lambda: None)
    for of_the_step in (30, 0, 7):
        faults += of_the_step
        with ledger.own_work():
            faults += 1_000
        ledger.close_step()
        faults += 5_000  # while the profiler is working
        ledger.open_step()
    assert ledger.document()["page_faults"] == [30, 0, 7]


def test_without_page_faults_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_ledger, "resource", None)  # as on Windows
    ledger = LedgerWriter(lambda: None)
    end_step(ledger)
    assert "page_faults" not in ledger.document()


@pytest.mark.parametrize(
    ("preloaded", "name"),
    [
        ("", None),
        ("/usr/lib/libtcmalloc.so.4:/opt/libother.so", "libtcmalloc.so.4"),
        ("/opt/a.so libjemalloc.so.2", "libjemalloc.so.2"),
    ],
)
def test_an_allocator_in_place_of_malloc_is_named(
    preloaded: str, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", preloaded)
    assert environment._preloaded_allocator() == name
