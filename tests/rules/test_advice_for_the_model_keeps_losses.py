"""Advice on the model's own work, done by hand on small trainings: the losses stay the same."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from support.advised_trainings import STEPS, WIDTH, Case, Cases, Losses, assert_same_losses, batches, mlp, sgd, train

pytestmark = pytest.mark.torch

CASES = Cases()
advice = CASES.advice


@advice("EF002")
@advice("EF005")
def evaluation_without_gradients(fixed: bool) -> Losses:
    """An evaluation fills a cache that the training reads: inference mode would make that an error."""
    import torch

    class Positions(torch.nn.Module):
        table: Any = None

        def forward(self, x: Any) -> Any:
            self.table = torch.arange(WIDTH) / WIDTH if self.table is None else self.table
            return x * self.table

    model = torch.nn.Sequential(mlp(), Positions(), mlp())
    optimizer = sgd(model)
    for x in batches():
        with torch.set_grad_enabled(not fixed):
            model(x)
        yield train(model(x).square().mean(), optimizer)


@advice("EF007")
def teacher_without_gradients(fixed: bool) -> Losses:
    import torch

    teacher, student = mlp(), mlp()
    optimizer = sgd(student)
    for x in batches():
        with torch.set_grad_enabled(not fixed):
            target = teacher(x)
        yield train((student(x) - target.detach()).square().mean(), optimizer)


@advice("EF008")
def loss_network(fixed: bool) -> Losses:
    model, features = mlp(), mlp()
    features.requires_grad_(not fixed)
    optimizer = sgd(model)
    for x in batches():
        yield train(features(model(x)).square().mean(), optimizer)


@advice("EF009")
def one_backward(fixed: bool) -> Losses:
    body, heads = mlp(), [mlp() for _ in range(3)]
    optimizer = sgd(body, *heads)
    for x in batches():
        hidden = body(x)
        losses = [head(hidden).square().mean() for head in heads]
        optimizer.zero_grad()
        if fixed:
            sum(losses).backward()
        else:
            for loss in losses:
                loss.backward(retain_graph=True)
        optimizer.step()
        yield sum(losses).detach()


@advice("EF010")
def unbind(fixed: bool) -> Losses:
    import torch

    cell, first = torch.nn.RNNCell(WIDTH, WIDTH), mlp()
    optimizer = sgd(cell, first)
    for x in batches(4, 9, WIDTH):
        x, h = first(x), torch.zeros(4, WIDTH)
        for x_t in x.unbind(1) if fixed else (x[:, t] for t in range(x.shape[1])):
            h = cell(x_t, h)
        yield train(h.square().mean(), optimizer)


@advice("EF011")
def layer_for_cell(fixed: bool) -> Losses:
    import torch
    from torch import nn

    cell = nn.LSTMCell(WIDTH, WIDTH)
    rnn = nn.LSTM(WIDTH, WIDTH, batch_first=True)
    rnn.load_state_dict({f"{name}_l0": weight for name, weight in cell.state_dict().items()})
    optimizer = sgd(rnn if fixed else cell)
    for x in batches(4, 7, WIDTH):
        if fixed:
            out, _ = rnn(x)
        else:
            state, outputs = (torch.zeros(4, WIDTH), torch.zeros(4, WIDTH)), []
            for t in range(x.shape[1]):
                state = cell(x[:, t], state)
                outputs.append(state[0])
            out = torch.stack(outputs, 1)
        yield train(out.square().mean(), optimizer)


@advice("EF011")
def packed_sequences(fixed: bool) -> Losses:
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

    rnn, lengths = torch.nn.GRU(WIDTH, WIDTH, batch_first=True), torch.tensor([3, 7, 5])
    optimizer = sgd(rnn)
    for x in batches(3, 7, WIDTH):
        sequences = [one[:length] for one, length in zip(x, lengths.tolist(), strict=True)]
        if fixed:
            padded = pad_sequence(sequences, batch_first=True)
            _, h = rnn(pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False))
        else:
            h = torch.cat([rnn(one[None])[1] for one in sequences], 1)
        yield train(h.square().mean(), optimizer)


@advice("EF012")
def embedding_for_one_hot(fixed: bool) -> Losses:
    import torch
    from torch.nn import functional

    linear, generator = torch.nn.Linear(100, WIDTH), torch.Generator().manual_seed(1)
    optimizer = sgd(linear)
    for _ in range(STEPS):
        ids = torch.randint(100, (8,), generator=generator)
        x = (
            functional.embedding(ids, linear.weight.t()) + linear.bias
            if fixed
            else linear(functional.one_hot(ids, 100).float())
        )
        yield train(x.square().mean(), optimizer)


@advice("EF014")
@advice("HS001")
@advice("LG002")
def read_now_and_then(fixed: bool) -> Losses:
    import torch

    model, total, seen = mlp(), torch.zeros(()), []
    optimizer = sgd(model)
    for step, x in enumerate(batches()):
        loss = train(model(x).square().mean(), optimizer)
        total += loss
        if not fixed or step % 3 == 0:
            seen.append(total.item())
            total.zero_()
        yield loss


@advice("EF026")
def first_values(fixed: bool) -> Losses:
    import torch

    model = mlp()
    optimizer = sgd(model)
    for x in batches():
        each = model(x).square()
        hardest = torch.topk(each, 3, dim=1)[0] if fixed else each.sort(dim=1, descending=True)[0][:, :3]
        easiest = torch.topk(each, 3, dim=1, largest=False)[0] if fixed else each.sort(dim=1)[0][:, :3]
        yield train((hardest - easiest).mean(), optimizer)


@advice("EF028")
def sparse_graph(fixed: bool) -> Losses:
    import torch

    graph, layer = torch.eye(8).roll(1, 0) / 2 + torch.eye(8), mlp()
    graph = graph.to_sparse_csr() if fixed else graph
    optimizer = sgd(layer)
    for x in batches():
        y = torch.sparse.mm(graph, layer(x)) if fixed else graph @ layer(x)
        yield train(y.square().mean(), optimizer)


@advice("EF029")
def ids_as_targets(fixed: bool) -> Losses:
    from torch.nn import functional

    model = mlp()
    optimizer = sgd(model)
    for x in batches():
        logits, ids = model(x).view(2, 4, WIDTH), x[:, 0].abs().mul(4).long().clamp(max=WIDTH - 1).view(2, 4)
        if fixed:
            loss = functional.cross_entropy(logits.flatten(0, -2), ids.flatten())
        else:
            loss = -(functional.one_hot(ids, WIDTH) * functional.log_softmax(logits, -1)).sum(-1).mean()
        yield train(loss, optimizer)


@advice("EF013")
def detached_generator(fixed: bool) -> Losses:
    generator, discriminator = mlp(), mlp()
    of_generator, of_discriminator = sgd(generator), sgd(discriminator)
    for noise in batches():
        images = generator(noise)
        yield train(discriminator(images.detach() if fixed else images).square().mean(), of_discriminator)
        discriminator.requires_grad_(not fixed)
        loss = -discriminator(generator(noise)).square().mean()
        yield train(loss, of_generator)
        discriminator.requires_grad_(True)


@advice("GM003")
def one_projection(fixed: bool) -> Losses:
    import torch
    from torch import nn

    parts, joined = [nn.Linear(WIDTH, WIDTH) for _ in range(3)], nn.Linear(WIDTH, 3 * WIDTH)
    joined.load_state_dict(
        {name: torch.cat([part.state_dict()[name] for part in parts]) for name in ("weight", "bias")}
    )
    optimizer = sgd(joined) if fixed else sgd(*parts)
    for x in batches():
        q, k, v = joined(x).chunk(3, dim=-1) if fixed else (part(x) for part in parts)
        yield train((q * k + v).square().mean(), optimizer)


@advice("EF020")
def sparse_table(fixed: bool) -> Losses:
    import torch

    table, generator = torch.nn.Embedding(1000, WIDTH, sparse=fixed), torch.Generator().manual_seed(1)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    for _ in range(STEPS):
        ids = torch.randint(20, (8,), generator=generator)
        yield train(table(ids).square().mean(), optimizer)


@advice("EF021")
def pairs_by_matmul(fixed: bool) -> Losses:
    model = mlp()
    optimizer = sgd(model)
    for x in batches():
        a, b = model(x), model(x.flip(0))
        if fixed:
            distances = a.pow(2).sum(-1, keepdim=True) + b.pow(2).sum(-1) - 2 * a @ b.mT
        else:
            distances = (a[:, None] - b[None]).pow(2).sum(-1)
        yield train(distances.mean(), optimizer)


@advice("EF022")
def gradients_of_samples(fixed: bool) -> Losses:
    import torch

    model = mlp()
    optimizer = sgd(model)
    names = [name for name, _ in model.named_parameters()]

    def loss_of(weights: Any, one: Any) -> Any:
        return torch.func.functional_call(model, weights, (one[None],)).square().mean()

    for x in batches():
        weights = dict(model.named_parameters())
        if fixed:
            found = torch.func.vmap(torch.func.grad(loss_of), (None, 0))({k: v.detach() for k, v in weights.items()}, x)
            each = [[found[name][i] for name in names] for i in range(len(x))]
        else:
            each = [list(torch.autograd.grad(loss_of(weights, one), list(weights.values()))) for one in x]
        norms = [torch.stack([part.norm() for part in parts]).norm().clamp_min(1.0) for parts in each]
        for number, name in enumerate(names):
            weights[name].grad = sum(parts[number] / norm for parts, norm in zip(each, norms, strict=True))
        optimizer.step()
        yield model(x).square().mean().detach()


@advice("EF023")
def loss_in_chunks(fixed: bool) -> Losses:
    import torch
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint

    body, head, generator = mlp(), torch.nn.Linear(WIDTH, 50), torch.Generator().manual_seed(1)
    optimizer = sgd(body, head)

    def part(h: Any, t: Any) -> Any:
        return functional.cross_entropy(head(h), t, reduction="sum")

    for x in batches(4, 6, WIDTH):
        targets = torch.randint(50, (24,), generator=generator)
        hidden = body(x).flatten(0, -2)
        if fixed:
            chunks = zip(hidden.split(7), targets.split(7), strict=True)
            loss: Any = sum(checkpoint(part, h, t, use_reentrant=False) for h, t in chunks) / len(targets)
        else:
            loss = functional.cross_entropy(head(hidden), targets)
        yield train(loss, optimizer)


@advice("EF018")
def rows_by_index_select(fixed: bool) -> Losses:
    import torch

    table, generator = torch.nn.Embedding(20, WIDTH), torch.Generator().manual_seed(1)
    optimizer = sgd(table)
    for _ in range(STEPS):
        ids = torch.randint(20, (8, 3), generator=generator)
        rows = table.weight.index_select(0, ids.flatten()).view(*ids.shape, -1) if fixed else table(ids)
        yield train(rows.square().mean(), optimizer)


@advice("EF025")
def joined_once(fixed: bool) -> Losses:
    import torch

    model = mlp()
    optimizer = sgd(model)
    for x in batches(4, 5, WIDTH):
        parts, result = [], torch.empty(0, WIDTH)
        for one in x:
            features = model(one)
            if fixed:
                parts.append(features)
            else:
                result = torch.cat([result, features])
        yield train((torch.cat(parts) if fixed else result).square().mean(), optimizer)


@advice("GM006")
def stacked_inverses(fixed: bool) -> Losses:
    import torch

    model = mlp()
    optimizer = sgd(model)
    for x in batches(5, 4, WIDTH):
        matrices = [(m := model(one)) @ m.mT + torch.eye(4) for one in x]
        if fixed:
            inverses = torch.linalg.inv(torch.stack(matrices))
        else:
            inverses = torch.stack([torch.linalg.inv(m) for m in matrices])
        yield train(inverses.mean(), optimizer)


@advice("PY007")
def model_cast_once(fixed: bool) -> Losses:
    """A copy of the model in another precision for a second output; batch norm counts batches in whole numbers."""
    import torch

    model = torch.nn.Sequential(mlp(), torch.nn.BatchNorm1d(WIDTH))
    other = copy.deepcopy(model).bfloat16()
    optimizer = sgd(model)
    for x in batches():
        if fixed:
            with torch.no_grad():
                torch._foreach_copy_(list(other.state_dict().values()), list(model.state_dict().values()))
        else:
            other = copy.deepcopy(model).bfloat16()
        with torch.no_grad():
            target = other(x.bfloat16()).float()
        yield train((model(x) - 0.5 * target).square().mean(), optimizer)


@advice("GM004")
def batched_matmul(fixed: bool) -> Losses:
    import torch

    weight = torch.nn.Parameter(torch.randn(5, WIDTH, WIDTH))
    optimizer = torch.optim.SGD([weight], lr=0.01)
    for x in batches(5, 4, WIDTH):
        y = torch.bmm(x, weight) if fixed else torch.stack([x[g] @ weight[g] for g in range(5)])
        yield train(y.square().mean(), optimizer)


@pytest.mark.parametrize(("case", "rel"), CASES)
def test_the_losses_stay(case: Case, rel: float) -> None:
    assert_same_losses(case, rel)
