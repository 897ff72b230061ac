"""Text generation: python generation.py. Prompts come from a loader; a step is a batch of them."""

from __future__ import annotations

import time

import torch
from research import Gpt
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from true_steps import seed_everything, true_step


class Prompts(Dataset[Tensor]):
    def __len__(self) -> int:
        return 160

    def __getitem__(self, index: int) -> Tensor:  # planted
        time.sleep(0.01)  # planted
        return torch.arange(index, index + 8) % 96


@torch.inference_mode()
def generate(model: Gpt, tokens: Tensor, new: int) -> Tensor:
    for _ in range(new):
        logits, _ = model(tokens)
        likely = torch.softmax(logits[:, -1] / 0.8, dim=-1)
        tokens = torch.cat([tokens, torch.multinomial(likely, 1)], dim=1)
    return tokens


def main() -> None:
    model = Gpt().eval()
    for prompts in DataLoader(Prompts(), batch_size=4):
        texts = generate(model, prompts, new=6)
        true_step()
    print(texts.tolist())


if __name__ == "__main__":
    seed_everything()
    main()
