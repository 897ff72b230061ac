"""Prints its process id, and trains with a slow phase."""

import os
import sys
import time

print(os.getpid(), flush=True)  # before the import, in which signals come too

import torch  # noqa: E402

torch.set_num_threads(1)
STEPS, SLOW = int(sys.argv[1]), range(60, 90)


def main() -> None:
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).pow(2).mean().backward()
        optimizer.step()
        time.sleep(0.02 if step in SLOW else 0.004)


if __name__ == "__main__":
    main()
