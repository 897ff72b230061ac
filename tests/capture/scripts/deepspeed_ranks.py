"""Two ranks of a DeepSpeed engine with two batches per update: deepspeed deepspeed_ranks.py STAGE.

STAGE is ZeRO's stage: what is split between the ranks.
"""

from __future__ import annotations

import os
import sys

os.environ["TORCH_EXTENSIONS_DIR"] = os.path.abspath("extensions")  # it compiles one for its collectives

import deepspeed  # pyright: ignore[reportMissingImports]
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

config = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "zero_optimization": {"stage": int(sys.argv[-1])},
    "zero_allow_untested_optimizer": True,
}
model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
for (x,) in DataLoader(TensorDataset(torch.randn(320, 16)), batch_size=4):
    engine.backward(engine(x).pow(2).mean())
    engine.step()
