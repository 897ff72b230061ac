"""Advice that edits the script, done by hand on small trainings: the losses stay the same."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.advised_trainings import STEPS, WIDTH, Case, Cases, Losses, assert_same_losses, batches, mlp, sgd, train

pytestmark = pytest.mark.torch

CASES = Cases()
advice = CASES.advice


@advice("AT001")
def attention(fixed: bool) -> Losses:
    import torch
    from torch.nn import functional

    project = mlp(WIDTH, 3 * WIDTH)
    optimizer, scale = sgd(project), 0.3
    for x in batches(2, 5, WIDTH):
        q, k, v = project(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        later = torch.ones(5, 5, dtype=torch.bool).triu(1)
        if fixed:  # a boolean mask is true where attention is allowed
            out = functional.scaled_dot_product_attention(q, k, v, attn_mask=~later, scale=scale)
        else:
            out = (q @ k.mT * scale).masked_fill(later, float("-inf")).softmax(-1) @ v
        yield train(out.square().mean(), optimizer)


@advice("CP009")
def written_norm(fixed: bool) -> Losses:
    """One of the vectors, which lie along the first dimension, is zero."""
    import torch

    model, sizes = mlp(), torch.arange(8.0)[:, None]
    optimizer = sgd(model)
    for x in batches(3, 8, WIDTH):
        vectors = model(x) * sizes
        lengths = vectors.square().sum(0).clamp_min(1e-24).sqrt() if fixed else vectors.norm(dim=0)
        yield train(lengths.mean(), optimizer)


@advice("CV001", rel=1e-3)
def channels_last(fixed: bool) -> Losses:
    import torch
    from torch import nn

    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten())
    model = model.to(memory_format=torch.channels_last) if fixed else model
    optimizer = sgd(model)
    for images in batches(2, 3, 8, 8):
        images = images.to(memory_format=torch.channels_last) if fixed else images
        yield train(model(images).square().mean(), optimizer)


@advice("CV002", rel=1e-3)
def bias_before_norm(fixed: bool) -> Losses:
    from torch import nn

    convolution = nn.Conv2d(3, 8, 3)
    if fixed:
        weight, convolution = convolution.weight, nn.Conv2d(3, 8, 3, bias=False)
        convolution.weight = weight
    model = nn.Sequential(convolution, nn.BatchNorm2d(8), nn.Tanh())
    optimizer = sgd(model)
    for images in batches(2, 3, 8, 8):
        yield train((model(images) - 0.5).square().mean(), optimizer)


@advice("DL001")
@advice("DL006")
def persistent_workers(fixed: bool) -> Losses:
    """Workers, of which the plain script has none. Those that persist shuffle otherwise from the second epoch on."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    data, model = TensorDataset(torch.cat(batches())), mlp()
    optimizer = sgd(model)
    loader = DataLoader(data, batch_size=16, num_workers=int(fixed), persistent_workers=fixed)
    for _epoch in range(2):
        for (x,) in loader:
            yield train(model(x).square().mean(), optimizer)


class ByLength:
    """A batch sampler: similar lengths together."""

    def __init__(self, lengths: Any, once: bool) -> None:
        self.lengths, self.once = lengths, once

    def __iter__(self) -> Iterator[list[int]]:
        if self.once:
            for batch in np.array_split(np.argsort(self.lengths, kind="stable"), len(self)):
                yield batch.tolist()
            return
        left = list(range(len(self.lengths)))
        for _ in range(len(self)):
            left.sort(key=lambda index: self.lengths[index])
            yield left[:8]
            left = left[8:]

    def __len__(self) -> int:
        return len(self.lengths) // 8


@advice("DL007")
def order_once(fixed: bool) -> Losses:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    data = torch.cat(batches())
    model, sampler = mlp(), ByLength(data[:, 0].numpy(), once=fixed)
    optimizer = sgd(model)
    for (x,) in DataLoader(TensorDataset(data), batch_sampler=sampler):
        yield train(model(x).square().mean(), optimizer)


@advice("HS004")
def masked_mean(fixed: bool) -> Losses:
    model = mlp()
    optimizer = sgd(model)
    for x in batches():
        each, mask = model(x).square().mean(-1), x[:, 0] > 0
        yield train((each * mask).sum() / mask.sum() if fixed else each[mask].mean(), optimizer)


@advice("LB002")
def one_table(fixed: bool) -> Losses:
    import torch
    from torch import nn

    sizes, width = [3, 5, 7], 4
    tables = [nn.Embedding(size, width) for size in sizes]
    table = nn.Embedding(sum(sizes), width)
    table.weight = nn.Parameter(torch.cat([one.weight.detach() for one in tables]))
    first_row = torch.tensor([0, 3, 8])
    optimizer, generator = sgd(table) if fixed else sgd(*tables), torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        values = torch.stack([torch.randint(size, (6,), generator=generator) for size in sizes], 1)
        each = [one(values[:, i]) for i, one in enumerate(tables)]
        vectors = table(values + first_row).flatten(1) if fixed else torch.cat(each, 1)
        yield train(vectors.square().mean(), optimizer)


@advice("LB002")
@advice("PY003")
def averages_in_place(fixed: bool) -> Losses:
    """An average of the weights, and a copy that is made anew in each step: both count in the loss."""
    import torch

    model = mlp()
    average, kept = copy.deepcopy(model), copy.deepcopy(model)
    averages, parameters = list(average.parameters()), list(model.parameters())
    optimizer, decay = sgd(model), 0.9
    for x in batches():
        loss = (model(x) - average(x).detach() + kept(x).detach()).square().mean()
        if fixed:
            with torch.no_grad():
                torch._foreach_copy_([*kept.parameters(), *kept.buffers()], [*parameters, *model.buffers()])
        else:
            kept = copy.deepcopy(model)
        yield train(loss, optimizer)
        with torch.no_grad():
            if fixed:
                torch._foreach_lerp_(averages, parameters, 1 - decay)
            else:
                for old, new in zip(averages, parameters, strict=True):
                    old.mul_(decay).add_(new, alpha=1 - decay)


@advice("LB006")
def tensor_of_one_array(fixed: bool) -> Losses:
    import torch

    model = mlp()
    optimizer = sgd(model)
    for x in batches():
        states = list(x.numpy())
        inputs = torch.from_numpy(np.stack(states)) if fixed else torch.tensor([list(state) for state in states])
        yield train(model(inputs).square().mean(), optimizer)


@advice("MM002")
@advice("MM007")
def checkpointed_halves(fixed: bool) -> Losses:
    """Activation checkpointing, and two half batches for one: MM002 advises both, MM007 the way back."""
    from torch.utils.checkpoint import checkpoint

    model = mlp()
    optimizer = sgd(model)
    for x in batches():
        optimizer.zero_grad()
        parts = x.chunk(2) if fixed else [x]
        losses = [
            (checkpoint(model, part, use_reentrant=False) if fixed else model(part)).square().mean() / len(parts)
            for part in parts
        ]
        for loss in losses:
            loss.backward()
        optimizer.step()
        yield sum(losses).detach()


@advice("OP001", rel=1e-3)
@advice("OP002", rel=1e-3)
def fused_optimizer(fixed: bool) -> Losses:
    import torch

    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=fixed or None)
    for x in batches():
        yield train(model(x).square().mean(), optimizer)


@advice("OP003")
def gradients_set_to_none(fixed: bool) -> Losses:
    model = mlp()
    optimizer = sgd(model)
    for x in batches():
        loss = model(x).square().mean()
        optimizer.zero_grad(set_to_none=fixed)
        loss.backward()
        optimizer.step()
        yield loss.detach()


@advice("TC001", rel=0.05)
def autocast(fixed: bool) -> Losses:
    import torch

    model = mlp()
    optimizer = sgd(model)
    for x in batches():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=fixed):
            loss = model(x).square().mean()
        yield train(loss, optimizer)


@advice("TC004")
def one_autocast_block(fixed: bool) -> Losses:
    import torch

    model = mlp()
    optimizer = sgd(model)

    def backward(micros: Any) -> Any:
        losses = [model(micro).square().mean() for micro in micros]
        for loss in losses:
            loss.backward()
        return sum(losses).detach()

    for x in batches():
        optimizer.zero_grad()
        total: Any = 0.0
        for micros in [x.chunk(4)] if fixed else [[micro] for micro in x.chunk(4)]:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                total += backward(micros)
        optimizer.step()
        yield total


@advice("TC005", rel=0.01)
def fp32(fixed: bool) -> Losses:
    model = mlp().float() if fixed else mlp().double()
    optimizer = sgd(model)
    for x in batches():
        yield train(model(x.float() if fixed else x.double()).square().mean(), optimizer)


@pytest.mark.parametrize(("case", "rel"), CASES)
def test_the_losses_stay(case: Case, rel: float) -> None:
    assert_same_losses(case, rel)


def test_one_iterator_reads_all_batches() -> None:
    """DL007: `next(iter(loader))` in each step begins anew; the advice reads on, and begins again at the end."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    def forever(loader: Any) -> Iterator[Any]:
        while True:
            yield from loader

    stream = forever(DataLoader(TensorDataset(torch.arange(12)), batch_size=4, shuffle=True))
    seen = [next(stream)[0] for _ in range(6)]
    for epoch in (seen[:3], seen[3:]):
        assert sorted(torch.cat(epoch).tolist()) == list(range(12))
