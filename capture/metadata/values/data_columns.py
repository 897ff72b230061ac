"""Data sets that hold all their items in memory, and how long a batch takes that is taken from them at once.

{"plain", "shuffled", "drop_last", "batch_us"}. `plain`: the loader would give the same batches if it took them at once,
because nothing in it is the script's own: not the data set, the sampler or how items become a batch. `batch_us` is
measured: rows of a batch, from all tensors and arrays with a row for each item.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from typing import Any

ROUNDS = 5
LIMIT_S = 0.05  # fewer rounds if they take longer than this
MOST_BYTES = 32 << 20  # of a batch that is taken; larger ones are scaled up
MOST_COLUMNS = 16
MOST_SAMPLES = 1 << 16  # of a batch


def describe_columns(torch: Any, loader: Any) -> dict[str, Any] | None:
    """None for other data sets, and for loaders that take batches at once already. Reads the data; draws no number from
    the script's generators.
    """
    data = torch.utils.data
    dataset, size, sampler = loader.dataset, loader.batch_size, loader.sampler
    count, inner = len(sampler), dataset
    while isinstance(inner, data.Subset):
        inner = inner.dataset
    if not size or size < 2 or not count or hasattr(inner, "__getitems__") or size > MOST_SAMPLES:
        return None
    columns = list(_columns(torch, inner))[:MOST_COLUMNS]
    if not columns:
        return None
    length = len(columns[0])
    row_bytes = max(1, sum(column.nbytes for column in columns) // length)
    rows = random.Random(0).choices(range(length), k=min(size, 1 + MOST_BYTES // row_bytes))  # noqa: S311
    plain = (
        type(dataset) is data.TensorDataset
        and loader.collate_fn is data.default_collate
        and type(sampler) in (data.RandomSampler, data.SequentialSampler)
        and type(loader.batch_sampler) is data.BatchSampler
    )
    return {
        "plain": plain,
        "shuffled": type(sampler) is data.RandomSampler,
        "drop_last": bool(loader.drop_last),
        "batch_us": round(_batch_s(torch, columns, rows) * size / len(rows) * 1e6, 1),
    }


def _columns(torch: Any, dataset: Any) -> Iterator[Any]:
    """Tensors and arrays with as many rows as there are items."""
    count, numpy = len(dataset), sys.modules.get("numpy")
    kinds = (torch.Tensor,) if numpy is None else (torch.Tensor, numpy.ndarray)
    values = list(vars(dataset).values())
    groups = [value for value in values if type(value) in (tuple, list, dict) and len(value) <= MOST_COLUMNS]
    for one in (*values, *(inner for group in groups for inner in _inner(group))):
        if type(one) in kinds and len(one.shape) and len(one) == count and _in_memory(torch, one):
            yield one


def _inner(group: Any) -> Iterator[Any]:
    return iter(group.values()) if isinstance(group, dict) else iter(group)


def _in_memory(torch: Any, one: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return bool(one.layout == torch.strided and one.device.type == "cpu")
    return one.dtype.kind in "biuf" and getattr(one.base, "filename", None) is None


def _batch_s(torch: Any, columns: list[Any], rows: list[int]) -> float:
    """The shortest time: other programs only ever make it longer."""
    times: list[float] = []
    while len(times) < ROUNDS and sum(times) < LIMIT_S:
        began = time.perf_counter()
        for column in columns:
            torch.as_tensor(column[rows])
        times.append(time.perf_counter() - began)
    return min(times)
