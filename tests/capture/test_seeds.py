"""Seeds of a timed run: the same on both sides, and others with the switch `seed`."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from traceopt.capture.script.switches import seeds


def drawn(monkeypatch: pytest.MonkeyPatch, *, by_script: bool, **switches: Any) -> list[float]:
    """What a script draws from each generator."""
    with monkeypatch.context() as patch:
        for module in (random, np.random):
            patch.setattr(module, "seed", module.seed)
        for module in (torch, torch.random):
            patch.setattr(module, "manual_seed", module.manual_seed)
        timed: Any = SimpleNamespace(switches=switches, seeded_by_script=False)
        seeds.fix(torch, timed)
        if by_script:
            random.seed(5)
            np.random.seed(5)
            torch.manual_seed(5)
        assert timed.seeded_by_script == by_script
        return [random.random(), float(np.random.random()), float(torch.rand(()))]  # noqa: S311


@pytest.mark.parametrize("by_script", [False, True])
def test_each_seed_draws_other_numbers_from_every_generator(monkeypatch: pytest.MonkeyPatch, by_script: bool) -> None:
    usual, again = (drawn(monkeypatch, by_script=by_script) for _ in range(2))
    first, second = (drawn(monkeypatch, by_script=by_script, seed=number) for number in (1, 2))
    assert usual == again
    assert all(len({*values}) == 3 for values in zip(usual, first, second, strict=True))
