"""One small training behind the command lines of other projects: python entry_points.py KIND [OPTIONS]."""

from __future__ import annotations

import argparse
import functools
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path

import click
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from true_steps import seed_everything, true_step


class Windows(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 240

    def __getitem__(self, index: int) -> torch.Tensor:  # planted
        time.sleep(0.002)  # planted
        return torch.full((16,), index / 240)


@dataclass
class Optimization:
    lr: float = 1e-3
    steps: int = 60


@dataclass
class Config:
    seed: int = 0
    batch_size: int = 4
    optimization: Optimization = field(default_factory=Optimization)


def train(config: Config, data: Dataset[torch.Tensor]) -> float:
    seed_everything(config.seed)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.optimization.lr)
    for step, batch in enumerate(DataLoader(data, batch_size=config.batch_size)):
        if step == config.optimization.steps:
            break
        x = batch[0] if isinstance(batch, list) else batch
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        true_step()
    return loss.item()


def composed(function: Callable[[Config], None]) -> Callable[[], None]:
    """A decorator as configuration frameworks have it: overrides `a.b=c`, a folder for each run, a log file there."""

    @functools.wraps(function)
    def main() -> None:
        config = Config()
        for override in sys.argv[2:]:
            name, _, value = override.partition("=")
            owner, _, leaf = name.rpartition(".")
            target = getattr(config, owner) if owner else config
            setattr(target, leaf, type(getattr(target, leaf))(value))
        folder = Path("outputs", "0")
        folder.mkdir(parents=True)
        os.chdir(folder)
        logging.basicConfig(filename="train.log", level=logging.INFO, force=True)
        function(config)

    return main


@composed
def configured(config: Config) -> None:
    loss = train(config, Windows())
    logging.info("loss %s", loss)
    print(Path.cwd().name, config, f"{loss:.8f}")


def typed() -> None:
    """Options made of the fields of dataclasses; the run ends with sys.exit of a number."""
    parser = argparse.ArgumentParser()
    for one in fields(Optimization):
        parser.add_argument(f"--optimization.{one.name}", type=type(one.default), default=one.default)
    values = vars(parser.parse_args(sys.argv[2:]))
    config = Config(optimization=Optimization(**{name.partition(".")[2]: value for name, value in values.items()}))
    print(f"{train(config, TensorDataset(torch.linspace(0, 1, 240 * 16).view(240, 16))):.8f}")
    sys.exit(3)


@click.group()
def cli() -> None:
    """Click ends the process itself, with sys.exit."""


@cli.command()
@click.option("--lr", default=1e-3)
@click.option("--fail", is_flag=True)
def commands(lr: float, fail: bool) -> None:
    click.echo(f"{train(Config(optimization=Optimization(lr)), Windows()):.8f}")
    if fail:
        raise click.ClickException("the score is too low")


if __name__ == "__main__":
    cli() if sys.argv[1] == "commands" else {"configured": configured, "typed": typed}[sys.argv[1]]()
