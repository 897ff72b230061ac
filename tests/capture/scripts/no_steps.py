"""Uses torch and trains nothing."""

import torch

print(torch.ones(2).sum().item())
