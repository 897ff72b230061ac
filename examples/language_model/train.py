#!/usr/bin/env python3
"""Trains a character-level GPT on the source of a module of Python. One file, nothing to download.

python train.py
python train.py --steps 200
"""

from __future__ import annotations

import argparse
import math
import textwrap
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 128, 128, 4, 4, 16


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mask", torch.tril(torch.ones(CONTEXT, CONTEXT)).bool())

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in self.qkv(x).split(WIDTH, dim=2))
        scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
        scores = scores.masked_fill(~self.mask[:length, :length], float("-inf"))
        mixed = functional.softmax(scores, dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Gpt(nn.Module):
    def __init__(self, characters: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(characters, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, characters)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        logits: Tensor = self.head(self.blocks(self.tokens(tokens) + self.places(places)))
        return logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=120)
    options = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    text = Path(textwrap.__file__).read_text(encoding="utf-8")
    characters = sorted(set(text))
    data = torch.tensor([characters.index(character) for character in text])
    model = Gpt(len(characters)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)

    for step in range(1, options.steps + 1):
        starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,))
        batch = torch.stack([data[start : start + CONTEXT + 1] for start in starts]).to(device)
        logits = model(batch[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:4}  loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
