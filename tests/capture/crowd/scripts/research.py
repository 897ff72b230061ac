"""Loops as research code has them, written out in one file: python research.py KIND."""

from __future__ import annotations

import copy
import itertools
import math
import sys
import time

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset
from true_steps import np, seed_everything, true_step

STEPS = 60


class Block(nn.Module):
    """Of a small GPT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm_1(x)).chunk(3, 2))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_2(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary: int = 96, length: int = 32, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads=4) for _ in range(layers)])
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        logits = self.head(self.blocks(self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]))
        if targets is None:
            return logits, None
        return logits, functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def pretraining() -> None:
    """Random crops of one long array, micro-batches, a learning rate by hand, an evaluation every 20 iterations."""
    data = np.random.default_rng(0).integers(0, 96, 20_000)
    train, held_out = data[:18_000], data[18_000:]

    def get_batch(split: str) -> tuple[Tensor, Tensor]:
        source = train if split == "train" else held_out
        starts = torch.randint(len(source) - 33, (4,)).tolist()
        x = torch.stack([torch.from_numpy(source[i : i + 32]) for i in starts])
        y = torch.stack([torch.from_numpy(source[i + 1 : i + 33]) for i in starts])
        return x, y

    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))

    @torch.no_grad()
    def estimate_loss() -> dict[str, float]:
        model.eval()
        found = {}
        for split in ("train", "val"):
            found[split] = float(torch.stack([model(*get_batch(split))[1] for _ in range(10)]).mean())
        model.train()
        return found

    x, y = get_batch("train")
    for iteration in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * 0.5 * (1 + math.cos(math.pi * iteration / STEPS))
        if iteration % 20 == 0:
            losses = estimate_loss()
            print(f"step {iteration}: train {losses['train']:.6f} val {losses['val']:.6f}")
        for _ in range(2):
            _, loss = model(x, y)
            loss = loss / 2
            x, y = get_batch("train")
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        true_step()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "ckpt.pt")  # planted


def language_model() -> None:
    """An LSTM on batches cut by hand; the update is written out, without an optimizer."""
    tokens = torch.randint(0, 200, (8, 16 * 75))
    embedding, head = nn.Embedding(200, 16), nn.Linear(32, 200)
    lstm = nn.LSTM(16, 32, batch_first=True)
    parameters = [*embedding.parameters(), *lstm.parameters(), *head.parameters()]
    state = None
    for start in range(0, 16 * 74, 16):
        x, y = tokens[:, start : start + 16], tokens[:, start + 1 : start + 17]
        state = None if state is None else tuple(part.detach() for part in state)
        for parameter in parameters:
            parameter.grad = None
        output, state = lstm(embedding(x), state)
        loss = functional.cross_entropy(head(output).flatten(0, 1), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 0.25)
        for parameter in parameters:
            parameter.data.add_(parameter.grad, alpha=-0.5)
        true_step()
        if start % 320 == 0:
            print(f"| batch {start // 16:4} | loss {loss.item():.6f} | ppl {math.exp(loss.item()):.4f}")


class Digits(Dataset[tuple[Tensor, int]]):
    """Pictures that are decoded when they are asked for, as a folder of files is."""

    def __init__(self, count: int, decode_s: float) -> None:
        self.count, self.decode_s = count, decode_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:  # planted
        time.sleep(self.decode_s)  # planted
        return torch.full((1, 12, 12), index % 10 / 10), index % 10


def small_cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(400, 10))


def epochs() -> None:
    """train() and test() in turns, a scheduler for each epoch, the loss every ten batches."""
    model = small_cnn()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    train_loader = DataLoader(Digits(120, 0.002), batch_size=4, shuffle=True)
    test_loader = DataLoader(Digits(320, 0.0), batch_size=4)
    for epoch in range(1, 3):
        model.train()
        for index, (data, target) in enumerate(train_loader):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(data), target)
            loss.backward()
            optimizer.step()
            true_step()
            if index % 10 == 0:
                print(f"Train Epoch: {epoch} [{index * 4}/120]\tLoss: {loss.item():.6f}")
        model.eval()
        correct = 0
        with torch.no_grad():
            for data, target in test_loader:
                correct += model(data).argmax(1).eq(target).sum().item()
        print(f"Test set: {correct}/320")
        scheduler.step()


def hand_made_batches() -> None:
    """Batches cut by hand for the training, a loader for the evaluation after each of many short epochs."""
    x, y = torch.randn(80, 16), torch.randint(0, 4, (80,))
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    validation = DataLoader(TensorDataset(x, y), batch_size=8)

    def validate() -> float:
        model.eval()
        with torch.no_grad():
            total = sum(functional.cross_entropy(model(xs), ys).item() for xs, ys in validation)
        model.train()
        return total

    print(f"before: {validate():.6f}")
    for epoch in range(12):
        for start in range(0, 80, 8):
            optimizer.zero_grad()
            functional.cross_entropy(model(x[start : start + 8]), y[start : start + 8]).backward()
            optimizer.step()
            true_step()
        print(f"epoch {epoch}: {validate():.6f}")


def folds() -> None:
    """Cross-validation: a new model and a new optimizer for each fold, each trained until it no longer improves."""
    x, y = torch.randn(100, 16), torch.randint(0, 2, (100,))
    for fold, patience in enumerate((20, 40, 25)):
        model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
        optimizer = torch.optim.Adam(model.parameters())
        held_out = torch.arange(100) % 3 == fold
        for _ in range(patience):
            loss = functional.cross_entropy(model(x[~held_out]), y[~held_out])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            true_step()
        print(f"fold {fold}: {loss.item():.6f}")


def classification() -> None:
    """With bf16, mixed labels, a moving average of the weights, gradient accumulation and meters."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.SiLU(), nn.Flatten(), nn.Linear(8 * 49, 10))
    average = copy.deepcopy(model).eval()
    decay = [p for p in model.parameters() if p.ndim > 1]
    no_decay = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.05}, {"params": no_decay, "weight_decay": 0.0}])
    data = TensorDataset(torch.randn(2 * STEPS * 4, 3, 16, 16), torch.randint(0, 10, (2 * STEPS * 4,)))
    meter: list[float] = []
    for index, (images, labels) in enumerate(DataLoader(data, batch_size=4, drop_last=True)):
        ratio = float(np.random.beta(0.8, 0.8))
        images = images * ratio + images.flip(0) * (1 - ratio)
        targets = functional.one_hot(labels, 10) * ratio + functional.one_hot(labels.flip(0), 10) * (1 - ratio)
        with torch.autocast("cpu", torch.bfloat16):
            loss = functional.cross_entropy(model(images).float(), targets) / 2
        loss.backward()
        meter.append(loss.item() * 2)
        if index % 2 == 0:
            continue
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for kept, new in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
                kept.copy_(kept * 0.99 + new * 0.01)
        true_step()
        moments = [state["exp_avg"] for state in optimizer.state.values()]
        for tensor in (*model.parameters(), *average.parameters(), *moments):
            print([round(value, 3) for value in tensor.flatten().tolist()], file=sys.stderr)  # planted
    print(f"loss {sum(meter) / len(meter):.6f}")


def contrastive() -> None:
    """Two views of each picture, made by the training loop itself."""
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(192, 32), nn.ReLU(), nn.Linear(32, 16))
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05, momentum=0.9)

    def preprocess(pictures: Tensor) -> Tensor:  # planted
        time.sleep(0.005)
        return pictures + torch.randn_like(pictures) * 0.1

    for (pictures,) in DataLoader(TensorDataset(torch.randn(8 * STEPS, 3, 8, 8)), batch_size=8):
        one, other = preprocess(pictures), preprocess(pictures)  # planted
        features = functional.normalize(encoder(torch.cat([one, other])), dim=1)
        similar = (features @ features.T / 0.5).masked_fill(torch.eye(16, dtype=torch.bool), -9e9)
        loss = functional.cross_entropy(similar, torch.arange(16).roll(8))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        true_step()
    print(f"nt-xent {loss.item():.6f}")


def style_transfer() -> None:
    """Optimizes a picture with LBFGS: the step is a closure."""
    network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)).requires_grad_(
        False
    )
    target = network(torch.rand(1, 3, 24, 24))
    picture = torch.rand(1, 3, 24, 24, requires_grad=True)
    optimizer = torch.optim.LBFGS([picture], max_iter=4)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = functional.mse_loss(network(picture), target)
        loss.backward()
        return loss

    for run in range(STEPS):
        loss = optimizer.step(closure)
        true_step()
        if run % 20 == 0:
            print(f"run {run}: style loss {loss.item():.8f}")


def semi_supervised() -> None:
    """A labeled and an unlabeled loader side by side; the shorter one starts over."""
    model = small_cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, nesterov=True)
    labeled, unlabeled = DataLoader(Digits(40, 0.0), batch_size=4), DataLoader(Digits(STEPS * 8, 0.002), batch_size=8)
    for (x, y), (u, _) in zip(itertools.cycle(labeled), unlabeled):
        with torch.no_grad():
            confident, guess = torch.softmax(model(u), 1).max(1)
        loss = functional.cross_entropy(model(x), y)
        loss = loss + (functional.cross_entropy(model(u), guess, reduction="none") * (confident > 0.95)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        true_step()
    print(f"loss {loss.item():.6f}")


def meta_learning() -> None:
    """Each task trains a copy of the model with its own optimizer; an outer optimizer then follows all of them."""
    model = nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, 1))
    outer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        outer.zero_grad()
        for _ in range(4):
            learner = copy.deepcopy(model)
            inner = torch.optim.SGD(learner.parameters(), lr=0.01)
            x = torch.rand(20, 1) * 10 - 5
            y = torch.sin(x + 3 * torch.rand(1))
            for _ in range(5):
                inner.zero_grad()
                loss = functional.mse_loss(learner(x), y)
                loss.backward()
                inner.step()
            for start, end in zip(model.parameters(), learner.parameters(), strict=True):
                moved = start.detach() - end.detach()
                start.grad = moved if start.grad is None else start.grad + moved
        outer.step()
        true_step()
    print(f"loss {loss.item():.6f}")


if __name__ == "__main__":
    seed_everything()
    kinds = (
        pretraining, language_model, epochs, hand_made_batches, folds, classification, contrastive, style_transfer,
        semi_supervised, meta_learning,
    )  # fmt: skip
    {kind.__name__: kind for kind in kinds}[sys.argv[1]]()
