"""Prints everything that a script can find out about how it was started, and its random numbers and losses."""

from __future__ import annotations

import inspect
import io
import os
import pickle
import random
import sys
import warnings

import __main__

before = sorted(name for name in sys.modules if name == "torch" or name.startswith("traceopt"))

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402


class Plain:
    """Pickled by the name __main__.Plain."""


print("argv", sys.argv)
print("path", sys.path)
print("main", __name__, __file__, __main__.__file__, __main__.__spec__, type(__main__.__loader__).__name__)
print("modules before", before, "flags", sys.flags, "cwd", os.getcwd())
print("pickled", pickle.loads(pickle.dumps(Plain())).__class__ is Plain, __main__.Plain is Plain)
print("signatures", inspect.signature(torch.optim.SGD.step), inspect.signature(torch.optim.Optimizer.zero_grad))
print("source", len(inspect.getsource(torch.optim.SGD.step)), torch.__spec__.loader.__class__.__name__)

random.seed(1)
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.Linear(16, 2))
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.randn(160, 16), torch.randint(0, 2, (160,)))
for x, y in DataLoader(data, batch_size=4, shuffle=True):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item().hex())
print("random", random.random(), torch.rand(1).item(), torch.get_rng_state().sum().item())
saved = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, saved)
again = pickle.loads(pickle.dumps(optimizer))
print("saved", len(saved.getvalue()), type(again).__name__)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.autograd.backward(model(data[0][0]).sum(), grad_variables=torch.ones(()))
print("warned at", [(os.path.basename(warning.filename), warning.lineno) for warning in caught])
print("to stderr", file=sys.stderr)
