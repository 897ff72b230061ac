"""DL008 items-one-by-one: take batches of in-memory data at once."""

from __future__ import annotations

from typing import Any

import pytest
from support.cpu_steps import Events, cpu_answer

from traceopt.result.document import Check
from traceopt.result.finding import Finding
from traceopt.testing import events as build

LOADING_US, BATCH_US, SIZE = 4_000, 500, 1_000
LOADER = "enumerate(DataLoader)#_{}DataLoaderIter.__next__"


def loaded(
    in_memory: dict[str, Any] | None, loading_us: float = LOADING_US, workers: int = 0, size: int = SIZE
) -> tuple[Check, list[Finding]]:
    """Steps of 10 ms that load a batch first."""

    def events(t: float, _: int) -> Events:
        yield build.annotation(LOADER.format("MultiProcessing" if workers else "SingleProcess"), t, loading_us)
        yield build.op("aten::mm", t + loading_us, 9_900 - loading_us)

    loader = {
        "num_workers": workers,
        "batch_size": size,
        "batches": 100,
        "updates": 100,
        "in_memory": in_memory,
        "fetch_us": 100 * loading_us,
        "fetch_cpu_us": 100 * loading_us,
        "built": [["train.py(12): main"]],
    }
    own = {"environment": {"cpu_count": 4, "threads": 1}, "loaders": [loader], "updates": 100}
    return cpu_answer("DL008", events, traceopt=own)


def memory(*, plain: bool = True, batch_us: float = BATCH_US) -> dict[str, Any]:
    return {"plain": plain, "shuffled": True, "drop_last": False, "batch_us": batch_us}


class TestItemsOneByOne:
    def test_fires_with_the_time_that_was_measured(self) -> None:
        _, [found] = loaded(memory())
        saving = found.saving or pytest.fail("no saving")
        assert saving.low_us == pytest.approx(0.7 * (LOADING_US - BATCH_US), rel=0.05)
        assert saving.est_us == pytest.approx(LOADING_US - BATCH_US, rel=0.02)
        assert "takes 1,000 items of a batch one by one from memory, 4.0 µs each" in found.why
        assert str(found.locations[0]) == "train.py:12"
        assert found.fix.settings == {
            "DataLoader.sampler": "BatchSampler(RandomSampler(dataset), 1000, drop_last=False)",
            "DataLoader.batch_size": "None",
        }

    def test_a_data_set_of_the_script_is_changed_by_a_person(self) -> None:
        _, [found] = loaded(memory(plain=False))
        assert found.confidence == "medium"
        assert not found.fix.edits
        assert "must accept a list of indices" in found.fix.text
        assert "BatchSampler(loader.sampler, batch_size=1000" in (found.fix.code or "")  # it may be of a rank

    def test_workers_do_not_help(self) -> None:
        _, [found] = loaded(memory(), workers=2)
        assert not found.fix.edits
        assert found.fix.text.endswith("The loader then needs no workers: set num_workers=0.")


class TestSilent:
    def test_silent_without_data_in_memory(self) -> None:
        check, findings = loaded(None)
        assert not findings
        assert check.reason == "The DataLoader takes no items from memory one by one."

    def test_a_batch_that_is_no_faster(self) -> None:
        assert not loaded(memory(batch_us=LOADING_US - 100))[1]

    def test_a_short_wait(self) -> None:
        assert not loaded(memory(batch_us=1), loading_us=200)[1]

    def test_an_item_that_takes_long(self) -> None:
        """It does more than take a row."""
        assert not loaded(memory(plain=False), size=30)[1]
