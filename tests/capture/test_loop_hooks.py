"""Steps of a loop that runs in this process, as in a notebook; torch is afterwards as it was before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runs import Trace

import traceopt

pytestmark = pytest.mark.torch


@pytest.fixture
def loops() -> dict[str, Callable[[], None]]:
    """Each trains twelve steps with an optimizer that is older than the recording."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 10)  # wraps the optimizer's step()
    loader = DataLoader(TensorDataset(torch.rand(48, 8)), batch_size=4)

    def train(x: Any) -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    def with_loader() -> None:
        for (x,) in loader:
            train(x)

    def without_loader() -> None:
        for _ in range(12):
            train(torch.rand(4, 8))

    def that_fails() -> None:
        with_loader()
        raise KeyError("in the cell")

    return {"loader": with_loader, "update": without_loader, "error": that_fails}


def patched() -> list[Any]:
    import torch
    from torch.optim import optimizer
    from torch.utils.data import dataloader

    return [
        dataloader.DataLoader.__init__,
        dataloader._BaseDataLoaderIter.__init__,
        dataloader._BaseDataLoaderIter.__next__,
        dataloader._MultiProcessingDataLoaderIter.__init__,
        torch.autograd.backward,
        torch.nn.Module.eval,
        torch.nn.Module.train,
        torch.optim.Optimizer.zero_grad,
        *optimizer._global_optimizer_pre_hooks.values(),
        *optimizer._global_optimizer_post_hooks.values(),
    ]


@pytest.mark.parametrize("rule", ["loader", "update"])
def test_steps_are_detected(loops: dict[str, Callable[[], None]], tmp_path: Path, rule: str) -> None:
    before = patched()
    with traceopt.profile(tmp_path, wait=0, warmup=1, active=4) as recording, recording.detecting_steps():
        loops[rule]()
    assert patched() == before
    [path] = recording.traces
    trace = Trace(path)
    assert trace.metadata["step_rule"] == rule
    assert len(trace.steps) == 4
    assert len(trace.metadata["ledger"]["step_us"]) == 12
    for step in trace.steps.values():
        assert (step["fetch"], step["update"]) == (int(rule == "loader"), 1)


def test_torch_is_restored_after_an_error(loops: dict[str, Callable[[], None]], tmp_path: Path) -> None:
    before = patched()
    with pytest.raises(KeyError, match="in the cell"):  # noqa: SIM117 - the recording ends before the error is seen
        with traceopt.profile(tmp_path, wait=0, warmup=1, active=4) as recording, recording.detecting_steps():
            loops["error"]()
    assert patched() == before
    assert len(recording.traces) == 1
