"""What a run notes of the values in its tensors: subnormal activations, padding, unused parameters of DDP.

A script whose own hooks would notice a look at its saved tensors is left alone.
"""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from runs import TIMEOUT_S, environment, free_port, traceopt_run

pytestmark = pytest.mark.torch

SCRIPT = """
import os
import sys
import torch
from torch import distributed, nn
from torch.utils.checkpoint import checkpoint

checkpointed = "checkpoint" in sys.argv
calls = 0

def forward(ids):
    global calls
    calls += 1
    weights = torch.exp(-95 - table(ids).square())  # below the smallest normal number
    return weights.transpose(1, 2) @ table(ids)

distributed.init_process_group("gloo", init_method="tcp://127.0.0.1:" + sys.argv[1], rank=0, world_size=1)
table = nn.Embedding(50, 32)
model = nn.parallel.DistributedDataParallel(nn.Linear(32, 4), find_unused_parameters=True)
optimizer = torch.optim.SGD([*table.parameters(), *model.parameters()], lr=1e-9)
graph = torch.eye(2048, 32)  # most of its rows are zero
ids = torch.zeros(8, 64, dtype=torch.long)
for row, length in enumerate((9, 20, 5, 12, 8, 16, 7, 10)):
    ids[row, :length] = torch.randint(1, 50, (length,))
for _ in range(30):
    hidden = checkpoint(forward, ids, use_reentrant=False) if checkpointed else forward(ids)
    loss = model(hidden.mean(1)).square().sum() + (graph @ model.module.weight.mT).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(calls)
"""


def recorded(folder: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    """What the script printed, and the trace's key `traceopt`."""
    (folder / "train.py").write_text(SCRIPT)
    command = traceopt_run("--logdir", "logs", "--no-analyze", "train.py", free_port(), *arguments)
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    [trace, *_] = (folder / "logs").rglob("*.gz")
    own: dict[str, Any] = json.loads(gzip.decompress(trace.read_bytes()))["traceopt"]
    assert own["notes"] == []
    return done.stdout, own


def test_activations_padding_and_ddp(tmp_path: Path) -> None:
    printed, own = recorded(tmp_path)
    assert printed.split()[-1] == "30"
    assert ("activation", [8, 64, 32]) in [(row["kind"], row["shape"]) for row in own["subnormals"]["tensors"]]
    [padding] = own["padding"]
    assert (padding["size"], padding["samples"], padding["longest"]) == (64, 8, 20.0)
    assert own["mostly_zero"] == [{"shape": [2048, 32], "share": 0.999512}]
    [ddp] = own["ddp"]
    assert (ddp["looks_for_unused"], ddp["unused_bytes"]) == (True, 0)
    assert ddp["built"][0][0].startswith("train.py(")


def test_looking_does_not_recompute_a_checkpointed_part(tmp_path: Path) -> None:
    printed, own = recorded(tmp_path, "checkpoint")
    assert printed.split()[-1] == "60"  # each step runs it in the forward and in the backward pass
    assert "activation" not in [row["kind"] for row in own["subnormals"]["tensors"]]
