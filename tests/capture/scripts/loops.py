"""Training loops of every kind, about forty steps each: python loops.py KIND...

Several kinds run in a process each.
"""

from __future__ import annotations

import importlib
import queue
import sys
import threading
from collections.abc import Callable, Iterator

import quick_torch  # noqa: F401
import torch
from forked import run_forked
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 40
BATCH = 4


def loader(batches: int = STEPS) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(torch.randn(batches * BATCH, 16)), batch_size=BATCH)


def batches() -> Iterator[Tensor]:
    return (torch.randn(BATCH, 16) for _ in range(STEPS))


model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(x: Tensor) -> None:
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()


def plain() -> None:
    for (x,) in loader():
        train(x)


def without_loader() -> None:
    for x in batches():
        train(x)


def accumulation() -> None:
    for index, (x,) in enumerate(loader(STEPS * 4)):
        model(x).pow(2).mean().backward()
        if index % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def gan_steps(inputs: Iterator[Tensor], critic_steps: int) -> None:
    generator, critic = nn.Linear(16, 16), nn.Linear(16, 1)
    slow = torch.optim.Adam(generator.parameters())
    fast = torch.optim.Adam(critic.parameters())
    for x in inputs:
        for _ in range(critic_steps):
            fast.zero_grad()
            (critic(generator(x).detach()).mean() - critic(x).mean()).backward()
            fast.step()
        slow.zero_grad()
        (-critic(generator(x)).mean()).backward()
        slow.step()


def gan() -> None:
    gan_steps((x for (x,) in loader()), critic_steps=1)


def gan_without_loader() -> None:
    gan_steps(batches(), critic_steps=3)


def evaluation() -> None:
    """Epochs as long as wait and warm-up of the standard schedule together, which is the worst case."""
    training, validation = loader(8), loader(100)
    for x in [next(iter(validation))[0]]:
        model(x)
    for _ in range(5):
        for (x,) in training:
            train(x)
        with torch.no_grad():
            for (x,) in validation:
                model(x)


def inference() -> None:
    with torch.inference_mode():
        for (x,) in loader(STEPS + 10):
            model(x).argmax(1)


def calls() -> None:
    """Reads no loader. The import stands for that of a profiler that tests/light_torch did not make lighter."""
    model.eval()
    with torch.inference_mode():
        for call in range(STEPS):
            model(torch.randn(4, 16))
            if call == 3:
                importlib.import_module("torch._dynamo.utils")


def inference_then_training() -> None:
    """Reads twelve batches first, which could be mistaken for inference."""
    with torch.no_grad():
        for (x,) in loader(12):
            model(x)
    plain()


def closure() -> None:
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    x, y = torch.randn(64, 16), torch.randn(64, 4)

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = (model(x) - y).pow(2).mean()
        value.backward()
        return value

    for _ in range(STEPS):
        optimizer.step(loss)


def manual() -> None:
    weight = torch.randn(16, 4, requires_grad=True)
    for x in batches():
        (x @ weight).pow(2).mean().backward()
        with torch.no_grad():
            weight -= 0.01 * weight.grad
            weight.grad = None


class Sealed(DataLoader[tuple[Tensor, ...]]):
    """Fails if its batch size is read, which training does not do."""

    @property
    def batch_size(self) -> int:  # type: ignore[override]
        raise RuntimeError("sealed")


def sealed_loader() -> None:
    sealed = loader()
    sealed.__class__ = Sealed  # after the constructor has set a batch size
    for (x,) in sealed:
        train(x)


def two_loaders() -> None:
    for (x,), (y,) in zip(loader(), loader(), strict=True):
        train(torch.cat([x, y]))


def one_batch() -> None:
    """Trains forever on one batch that was read from a loader."""
    x = next(iter(loader()))[0]
    for _ in range(80):
        train(x)


def updated_in_backward(inputs: Iterator[Tensor]) -> None:
    deep = nn.Sequential(*[nn.Linear(16, 16) for _ in range(3)])
    optimizers = {p: torch.optim.Adam([p], foreach=False) for p in deep.parameters()}

    def update(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in deep.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    for x in inputs:
        deep(x).sum().backward()


def in_backward() -> None:
    updated_in_backward(x for (x,) in loader())


def in_backward_without_loader() -> None:
    updated_in_backward(batches())


def skipped_updates() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    for index, (x,) in enumerate(loader()):
        optimizer.zero_grad()
        loss = model(x).sum() * (float("inf") if index % 3 == 0 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def in_thread() -> None:
    thread = threading.Thread(target=plain)
    thread.start()
    thread.join()


def prefetched() -> None:
    """Another thread reads the loader."""
    waiting: queue.Queue[Tensor | None] = queue.Queue(4)

    def read() -> None:
        for (x,) in loader():
            waiting.put(x)
        waiting.put(None)

    threading.Thread(target=read, daemon=True).start()
    while (x := waiting.get()) is not None:
        train(x)


def endless() -> None:
    while True:
        plain()


LOOPS: dict[str, Callable[[], None]] = {
    name: thing for name, thing in list(globals().items()) if callable(thing) and thing.__module__ == __name__
}


if __name__ == "__main__":
    torch.manual_seed(0)
    if len(sys.argv) == 2:
        LOOPS[sys.argv[1]]()
    else:
        run_forked(LOOPS, sys.argv[1:])
