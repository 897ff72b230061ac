#!/usr/bin/env python3
"""Trains a small model. Reading an item takes a while, as from a slow disk, in the training process."""

import gc
import time

gc.disable()  # torch imports faster

import torch  # noqa: E402
import torch._dynamo  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

gc.enable()
torch.set_num_threads(1)


class SlowDisk(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 4_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.003)
        return torch.full((8,), index / len(self))


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in DataLoader(SlowDisk(), batch_size=4, num_workers=0):
        loss = (model(batch) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.012)  # other work of the loop, so that two workers are enough


if __name__ == "__main__":
    main()
