#!/usr/bin/env python3
"""Answers batches of requests with a small text classifier, as a server's worker does.

python serve.py
python serve.py --requests 4000
"""

from __future__ import annotations

import argparse
import zlib

import torch
from torch import Tensor, nn

WORDS, WIDTH, HEADS, CLASSES, BATCH, LENGTH = 20_000, 128, 4, 5, 8, 256


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        split = self.qkv(self.norms[0](x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        q, k, v = split.unbind()
        weights = torch.softmax(q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5, dim=-1)
        mixed = weights @ v
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.encoder = nn.Sequential(*(Block() for _ in range(4)))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encoder(self.words(tokens)).mean(dim=1))
        return logits


def tokenized(text: str) -> list[int]:
    return [zlib.crc32(word.encode()) % WORDS for word in text.split()][:LENGTH]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=960)
    options = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Classifier().to(device).eval()
    answered = 0
    while answered < options.requests:
        texts = [" ".join(f"word{(answered + i) * j % 997}" for j in range(LENGTH)) for i in range(BATCH)]
        batch = torch.tensor([tokenized(text) for text in texts]).to(device)
        answers = model(batch).argmax(dim=1).tolist()
        answered += len(answers)
    print(f"{answered} requests answered")


if __name__ == "__main__":
    main()
