#!/usr/bin/env python3
"""Fine-tunes a small Vision Transformer of Hugging Face on JPEG files. The first run writes the pictures.

python train.py
python train.py --data pictures --steps 200
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, RandomSampler
from transformers import ViTConfig, ViTForImageClassification

CLASSES = 10
PICTURES = 256


def write_pictures(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for number in range(PICTURES):
        coarse = random.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize((640, 480), Image.Resampling.BICUBIC)
        picture.save(folder / f"{number % CLASSES}_{number:04}.jpg", quality=90)


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*.jpg"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        file = self.files[index]
        picture = Image.open(file).convert("RGB").resize((64, 64), Image.Resampling.BICUBIC)
        pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 127.5 - 1
        return pixels, int(file.name.partition("_")[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("pictures"))
    parser.add_argument("--steps", type=int, default=120)
    options = parser.parse_args()
    if not options.data.is_dir():
        write_pictures(options.data)

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = ViTConfig(
        image_size=64, patch_size=8, hidden_size=128, num_hidden_layers=4, num_attention_heads=4,
        intermediate_size=512, num_labels=CLASSES,
    )  # fmt: skip
    model = ViTForImageClassification(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    pictures = Pictures(options.data)
    order = RandomSampler(pictures, generator=torch.Generator().manual_seed(0))  # the same with any number of workers
    loader = DataLoader(pictures, batch_size=32, sampler=order, drop_last=True)

    step = 0
    while step < options.steps:
        for pixels, labels in loader:
            loss = model(pixel_values=pixels.to(device), labels=labels.to(device)).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % 20 == 0:
                print(f"step {step:4}  loss {loss.item():.3f}", flush=True)
            if step == options.steps:
                break


if __name__ == "__main__":
    main()
