"""The switches of `traceopt try` for data loaders: the batches stay the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from traceopt.capture.script.switches.switches import _change_loaders

TABLE = TensorDataset(torch.arange(60.0).view(20, 3), torch.arange(20))


class Own(Dataset[int]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> int:
        return index


def switched(**switches: Any) -> tuple[type[DataLoader[Any]], list[str]]:
    """A loader class with these switches, and which of them had an effect so far."""

    class Loader(DataLoader[Any]):
        __init__ = DataLoader.__init__

    used: list[str] = []
    timed: Any = SimpleNamespace(switches=switches, used=used.append)
    module = SimpleNamespace(DataLoader=Loader, IterableDataset=IterableDataset)
    _change_loaders(torch, module, timed, SimpleNamespace(exclude=lambda function: function))  # type: ignore[arg-type]
    return Loader, used


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"shuffle": True, "drop_last": True}])
def test_batches_taken_at_once_are_the_same(options: dict[str, Any]) -> None:
    loader, used = switched(batch_fetch=True)

    def batches(kind: type[DataLoader[Any]]) -> list[list[torch.Tensor]]:
        torch.manual_seed(0)
        return [batch for _ in range(2) for batch in kind(TABLE, batch_size=6, **options)]

    before, after = batches(DataLoader), batches(loader)
    assert used == ["batch_fetch"] * 2
    assert [type(one) for one in before] == [type(one) for one in after]
    for one, other in zip(before, after, strict=True):
        assert all(map(torch.equal, one, other))


@pytest.mark.parametrize("options", [{"collate_fn": list}, {"sampler": range(20)}, {"batch_sampler": [[1, 2]]}])
def test_a_loader_with_something_of_the_script_in_it_is_left_alone(options: dict[str, Any]) -> None:
    loader, used = switched(batch_fetch=True)
    assert len(list(loader(TABLE, **options))) == len(list(DataLoader(TABLE, **options)))
    assert len(list(loader(Own()))) == 20
    assert not used


def test_no_workers() -> None:
    loader, used = switched(loader_workers=0)
    found = loader(Own(), num_workers=2, persistent_workers=True, prefetch_factor=4)
    assert (found.num_workers, found.persistent_workers, used) == (0, False, ["loader_workers"])
    assert loader(Own()).num_workers == 0
    assert used == ["loader_workers"]
