"""Padding is told from data: by samples of different lengths that end, or begin, with the same value."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from traceopt.capture.metadata.values.padding import Padding

LENGTHS, SIZE = (12, 30, 7, 21), 64


def ids(lengths: tuple[int, ...] = LENGTHS, size: int = SIZE, value: int = 0, *, left: bool = False) -> torch.Tensor:
    found = torch.full((len(lengths), size), value)
    for row, length in zip(found, lengths, strict=True):
        row[:length] = torch.arange(1, length + 1)
    return found.flip(1) if left else found


def frames(lengths: tuple[int, ...] = LENGTHS, size: int = SIZE) -> torch.Tensor:
    return torch.stack([(torch.arange(size) < length).float()[:, None].repeat(1, 5) for length in lengths])


def looked_at(*batches: Any) -> list[tuple[int, int, float]]:
    padding = Padding(torch)
    for batch in batches:
        padding.look(batch)
    return [(row["size"], row["batches"], row["longest"]) for row in padding.document()]


@pytest.mark.parametrize(
    "batch",
    [
        (ids(), torch.arange(4)),
        {"input_ids": ids(value=999), "attention_mask": (ids() > 0).long()},
        [ids(left=True)],
        [ids() > 0],
        [frames()],
        [frames().transpose(1, 2)],
        {"labels": [ids(value=-100)]},
    ],
)
def test_padded(batch: Any) -> None:
    assert looked_at(batch, batch) == [(SIZE, 2, 30.0)]


def test_the_longest_of_several_batches() -> None:
    assert looked_at([ids()], [ids((9, 40, 8, 3))], [ids((9, 64, 8, 3))]) == [(SIZE, 3, 44.7)]


def test_all_tensors_of_a_batch_must_be_padded() -> None:
    """A position that one of them uses cannot be cut."""
    assert looked_at([ids(), ids((64, 3, 4, 5))]) == []


@pytest.mark.parametrize(
    "batch",
    [
        [ids((30, 30, 30, 30))],  # the last columns of a table, which happen to be the same
        [ids((64, 64, 64, 64))],
        [ids((64, 12, 5, 9))],
        [torch.eye(4, 64).long()],  # one value of many: zeros everywhere
        [torch.zeros(4, 64)],  # numbers of two dimensions: features
        [torch.zeros(4, 64).long()],
        [torch.arange(64)],
        [torch.tensor(1), torch.tensor(0.5)],
        [ids((3, 5, 2, 4), size=6)],
        [torch.rand(4, 64, 5)],
        "text",
    ],
)
def test_no_padding(batch: Any) -> None:
    assert looked_at(batch) == []


def test_a_picture_with_a_black_border_is_hardly_padded() -> None:
    """Rows of pictures, read one after the other by a recurrent network."""
    rows = torch.zeros(4, 28, 28)
    for row, last in zip(rows, (24, 25, 23, 22), strict=True):
        row[4:last, 5:20] = 1.0
    assert all(longest >= 0.7 * size for size, _, longest in looked_at([rows]))


def test_the_batch_and_the_generators_stay_as_they_are() -> None:
    batch, state = ids(), torch.random.get_rng_state()
    kept = batch.clone()
    looked_at([batch])
    assert torch.equal(batch, kept)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_where_items_are_joined() -> None:
    def collate(items: Any) -> Any:
        return items

    padding = Padding(torch)
    padding.look([ids()], collate)
    first = collate.__code__.co_firstlineno
    assert padding.document()[0]["at"].endswith(f"test_padding.py({first}): collate")
