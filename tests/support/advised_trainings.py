"""Small trainings with a rule's advice followed to the letter, and what they need: the losses must stay the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from traceopt.rules.registry import builtin_rules

Losses = Iterator[Any]
Case = Callable[[bool], Losses]
CODES = [rule.code for rule in builtin_rules()]
STEPS, WIDTH = 6, 16


class Cases(list[Any]):
    """Trainings with the fault or, if `fixed`, with the rule's advice followed. Each yields its losses."""

    def advice(self, code: str, rel: float = 1e-4) -> Callable[[Case], Case]:
        """Registers a case of a rule. `rel`: how much rounding may change the losses."""
        assert code in CODES

        def register(case: Case) -> Case:
            self.append(pytest.param(case, rel, id=f"{code}-{case.__name__}"))
            return case

        return register


def assert_same_losses(case: Case, rel: float) -> None:
    import torch

    runs = []
    for fixed in (False, True):
        torch.manual_seed(0)
        runs.append([float(loss) for loss in case(fixed)])
    assert len(runs[0]) >= STEPS
    assert runs[1] == pytest.approx(runs[0], rel=rel)
    assert len(set(runs[0])) > 1, "it trains"


def mlp(*widths: int) -> Any:
    from torch import nn

    pairs = itertools.pairwise(widths or (WIDTH, WIDTH, WIDTH))
    return nn.Sequential(*(part for i, o in pairs for part in (nn.Linear(i, o), nn.Tanh())))


def batches(*shape: int) -> list[Any]:
    import torch

    generator = torch.Generator().manual_seed(1)
    return [torch.randn(*(shape or (8, WIDTH)), generator=generator) for _ in range(STEPS)]


def train(loss: Any, optimizer: Any) -> Any:
    """One step. Returns the loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def sgd(*models: Any, lr: float = 0.1) -> Any:
    import torch

    return torch.optim.SGD([parameter for model in models for parameter in model.parameters()], lr=lr, momentum=0.5)
