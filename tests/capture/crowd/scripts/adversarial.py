"""Two networks that train against each other: python adversarial.py KIND."""

from __future__ import annotations

import itertools
import sys
import time

import torch
from torch import Tensor, autograd, nn
from torch.utils.data import DataLoader, Dataset
from true_steps import seed_everything, true_step

STEPS = 60


class Faces(Dataset[Tensor]):
    def __len__(self) -> int:
        return STEPS * 4

    def __getitem__(self, index: int) -> Tensor:  # planted
        time.sleep(0.003)  # planted
        return torch.full((1, 16, 16), index / len(self))


def pictures() -> None:
    """One update of the discriminator and one of the generator for each batch."""
    generator = nn.Sequential(nn.ConvTranspose2d(8, 4, 4), nn.ReLU(), nn.ConvTranspose2d(4, 1, 4, 4), nn.Tanh())
    critic = nn.Sequential(nn.Conv2d(1, 4, 4, 4), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(64, 1))
    criterion = nn.BCEWithLogitsLoss()
    optimizer_d = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    real_label, fake_label = torch.ones(4, 1), torch.zeros(4, 1)
    for index, real in enumerate(DataLoader(Faces(), batch_size=4, shuffle=True)):
        critic.zero_grad()
        error_real = criterion(critic(real), real_label)
        error_real.backward()
        fake = generator(torch.randn(4, 8, 1, 1))
        error_fake = criterion(critic(fake.detach()), fake_label)
        error_fake.backward()
        optimizer_d.step()
        generator.zero_grad()
        error_g = criterion(critic(fake), real_label)
        error_g.backward()
        optimizer_g.step()
        true_step()
        if index % 20 == 0:
            print(f"[{index}] Loss_D: {(error_real + error_fake).item():.6f} Loss_G: {error_g.item():.6f}")


def critic_first() -> None:
    """Five updates of the critic, with a gradient penalty, for one of the generator; no loader."""
    generator = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer_d = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))

    def penalty(real: Tensor, fake: Tensor) -> Tensor:
        mix = torch.rand(len(real), 1)
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        [slope] = autograd.grad(critic(between).sum(), between, create_graph=True)
        return (slope.norm(2, dim=1) - 1).pow(2).mean()

    for iteration in range(STEPS):
        for _ in range(5):
            real, fake = torch.randn(16, 2) + 2, generator(torch.randn(16, 2)).detach()
            optimizer_d.zero_grad()
            loss = critic(fake).mean() - critic(real).mean() + 10 * penalty(real, fake)
            loss.backward()
            optimizer_d.step()
        optimizer_g.zero_grad()
        loss_g = -critic(generator(torch.randn(16, 2))).mean()
        loss_g.backward()
        optimizer_g.step()
        true_step()
        if iteration % 20 == 0:
            print(f"iteration {iteration}: D {loss.item():.6f} G {loss_g.item():.6f}")


def unpaired() -> None:
    """Two generators under one optimizer, two critics under another, a linear decay, two loaders of pictures."""
    g_ab, g_ba = (nn.Conv2d(1, 1, 3, padding=1) for _ in range(2))
    d_a, d_b = (nn.Sequential(nn.Conv2d(1, 4, 4, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 1)) for _ in range(2))
    optimizer_g = torch.optim.Adam(itertools.chain(g_ab.parameters(), g_ba.parameters()), lr=2e-4)
    optimizer_d = torch.optim.Adam(itertools.chain(d_a.parameters(), d_b.parameters()), lr=2e-4)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer_g, lambda epoch: 1 - epoch / 3)
    for _ in range(2):
        for a, b in zip(DataLoader(Faces(), batch_size=8), DataLoader(Faces(), batch_size=8), strict=True):
            fake_a, fake_b = g_ba(b), g_ab(a)
            optimizer_g.zero_grad()
            cycle = (g_ba(fake_b) - a).abs().mean() + (g_ab(fake_a) - b).abs().mean()
            loss = (d_a(fake_a) - 1).pow(2).mean() + (d_b(fake_b) - 1).pow(2).mean() + 10 * cycle
            loss.backward()
            optimizer_g.step()
            optimizer_d.zero_grad()
            for critic, real, fake in ((d_a, a, fake_a), (d_b, b, fake_b)):
                ((critic(real) - 1).pow(2).mean() + critic(fake.detach()).pow(2).mean()).backward()
            optimizer_d.step()
            true_step()
        decay.step()
        print(f"cycle loss {cycle.item():.6f}")


if __name__ == "__main__":
    seed_everything()
    {kind.__name__: kind for kind in (pictures, critic_first, unpaired)}[sys.argv[1]]()
