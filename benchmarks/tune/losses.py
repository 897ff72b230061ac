"""How often `traceopt try` tells other random numbers from other training: `python benchmarks/tune/losses.py`.

Three small trainings run with many seeds, unchanged and with planted changes. Each trial draws the seeds of both sides
from these runs, as `traceopt try` runs them (trying/spread.py), and counts the answers.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence

import torch

from traceopt.trying.spread import LOOKS, SeededLosses, over_seeds

STEPS, BATCH, CLASSES, SIZE, RUNS, TRIALS = 60, 32, 10, 12, 40, 1000
VARIANTS = ("other random numbers", "learning rate x2", "no augmentation", "each batch twice")

torch.set_num_threads(1)
_fixed = torch.Generator().manual_seed(1)
CENTERS = 0.3 * torch.randn(CLASSES, 1, SIZE, SIZE, generator=_fixed)
LABELS = torch.randint(CLASSES, (4096,), generator=_fixed)
IMAGES = CENTERS[LABELS] + torch.randn(4096, 1, SIZE, SIZE, generator=_fixed)


def convolutions(dropout: float) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Dropout(dropout),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * SIZE * SIZE, CLASSES),
    )


def losses(model: Callable[[], torch.nn.Module], augment: bool, variant: str, seed: int) -> list[float]:
    """Of one run. The weights and the order of the data come from the seed, like those of the other side."""
    torch.manual_seed(seed)
    trained = model()
    order = torch.randperm(len(IMAGES))
    if variant != "unchanged":
        torch.manual_seed(seed + 1_000_000)  # what is drawn from here on is drawn by other generators
    rate = 0.1 if variant == "learning rate x2" else 0.05
    optimizer = torch.optim.SGD(trained.parameters(), lr=rate, momentum=0.9)
    found = []
    for step in range(STEPS):
        batch = step // 2 if variant == "each batch twice" else step
        chosen = order[batch * BATCH : (batch + 1) * BATCH]
        images = IMAGES[chosen]
        if augment and variant != "no augmentation":
            images = images.roll(int(torch.randint(-2, 3, ())), 3) + 0.5 * torch.randn_like(images)
        loss = torch.nn.functional.cross_entropy(trained(images), LABELS[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return found


def answer(unchanged: Sequence[list[float]], changed: Sequence[list[float]], seeds: Sequence[int]) -> SeededLosses:
    """As `traceopt try` finds it: with more seeds until it is known."""
    for count in LOOKS:
        found = over_seeds(*([side[seed] for seed in seeds[:count]] for side in (unchanged, changed)))
        if found.differs or found.same:
            break
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="seeds of each variant")
    runs = parser.parse_args().runs
    chance = random.Random(0)  # noqa: S311
    print("| training | change | called the same |\n| --- | --- | ---: |")
    trainings: dict[str, tuple[Callable[[], torch.nn.Module], bool]] = {
        "augmentation": (lambda: convolutions(0.0), True),
        "dropout": (lambda: convolutions(0.5), False),
        "augmentation and dropout": (lambda: convolutions(0.5), True),
    }
    for name, (model, augment) in trainings.items():
        unchanged = [losses(model, augment, "unchanged", seed) for seed in range(runs)]
        for variant in VARIANTS:
            if variant == "no augmentation" and not augment:
                continue
            changed = [losses(model, augment, variant, seed) for seed in range(runs)]
            same = 0
            for _ in range(TRIALS):
                same += answer(unchanged, changed, chance.sample(range(runs), LOOKS[-1])).same
            print(f"| {name} | {variant} | {same / TRIALS:.1%} |", flush=True)


if __name__ == "__main__":
    main()
