"""Data sets in memory are recognized."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, WeightedRandomSampler, default_collate

from traceopt.capture.metadata.values import data_columns
from traceopt.capture.metadata.values.data_columns import describe_columns

TABLE = TensorDataset(torch.arange(60.0).view(20, 3), torch.arange(20))


class Own(Dataset[Any]):
    def __init__(self, values: Any, count: int = 20) -> None:
        self.values, self.count = values, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.values[index]


class Batched(Own):
    def __getitems__(self, indices: list[int]) -> Any:
        return self.values[indices]


def described(dataset: Any, **arguments: Any) -> dict[str, Any] | None:
    return describe_columns(torch, DataLoader(dataset, **{"batch_size": 4} | arguments))


def test_a_table_of_tensors() -> None:
    before = torch.random.get_rng_state()
    found = described(TABLE, shuffle=True, drop_last=True) or {}
    assert found.pop("batch_us") > 0
    assert found == {"plain": True, "shuffled": True, "drop_last": True}
    assert bool((torch.random.get_rng_state() == before).all())


@pytest.mark.parametrize(
    ("dataset", "arguments"),
    [
        (Own(torch.zeros(20, 3)), {}),
        (Own(np.zeros((20, 3))), {}),
        (Own({"pictures": torch.zeros(20, 3)}), {}),
        (Subset(TABLE, range(10)), {}),
        (TABLE, {"collate_fn": lambda items: default_collate(items)}),
        (TABLE, {"sampler": WeightedRandomSampler([1.0] * 20, 20)}),
    ],
)
def test_with_something_of_the_script_in_it(dataset: Any, arguments: dict[str, Any]) -> None:
    assert (described(dataset, **arguments) or {})["plain"] is False


@pytest.mark.parametrize(
    ("dataset", "arguments"),
    [
        (Own(list(range(20))), {}),
        (Own(torch.zeros(21, 3)), {}),  # not a row for each item
        (Own(np.array(["a"] * 20)), {}),
        (Batched(torch.zeros(20, 3)), {}),
        (TABLE, {"batch_size": 1}),
        (TABLE, {"batch_size": None}),
    ],
)
def test_other_data_sets_are_not_described(dataset: Any, arguments: dict[str, Any]) -> None:
    assert described(dataset, **arguments) is None


def test_a_file_that_is_mapped_into_memory(tmp_path: Any) -> None:
    np.save(tmp_path / "rows.npy", np.zeros((20, 3)))
    assert described(Own(np.load(tmp_path / "rows.npy", mmap_mode="r"))) is None


@pytest.mark.parametrize(("most_bytes", "batch_us"), [(64, 5.0), (1 << 20, 1.0)])
def test_a_large_batch_is_taken_in_part(monkeypatch: pytest.MonkeyPatch, most_bytes: int, batch_us: float) -> None:
    """Four of 20 rows, which have 20 bytes each, take a microsecond here, as any number of rows does."""
    monkeypatch.setattr(data_columns, "MOST_BYTES", most_bytes)
    monkeypatch.setattr(data_columns, "_batch_s", lambda *_: 1e-6)
    assert (described(TABLE, batch_size=20) or {})["batch_us"] == batch_us
