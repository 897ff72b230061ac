"""The switches of `traceopt try` for models: what they change. What the script does itself stays as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from traceopt.capture.launch.launcher import child_environment
from traceopt.capture.script.switches import models
from traceopt.capture.settings import Settings, TimedRun
from traceopt.trying.measured_run import MeasuredRun, read_run


def turned_on(patched: pytest.MonkeyPatch, **switches: Any) -> list[str]:
    """Which of these switches had an effect so far."""
    used: list[str] = []
    patched.setattr(torch.optim.Optimizer, "__init__", torch.optim.Optimizer.__init__)  # undone after the test
    timed: Any = SimpleNamespace(switches=switches, used=used.append, at_settled=[])
    dynamo: Any = SimpleNamespace(exclude=lambda function, **_: function)
    models.turn_on(torch, timed, dynamo)
    return used


def test_filters_are_converted_before_the_first_update(monkeypatch: pytest.MonkeyPatch) -> None:
    used = turned_on(monkeypatch, channels_last=True)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(8, 2))
    before = [one.detach().clone() for one in model.parameters()]
    other = torch.nn.Conv2d(3, 8, 3)
    torch.optim.SGD(model.parameters(), lr=0.1)
    weight = model[0].weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert not other.weight.is_contiguous(memory_format=torch.channels_last)
    assert all(map(torch.equal, before, model.parameters()))
    assert used == ["channels_last"]


def test_a_model_without_filters_or_in_buckets_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    used = turned_on(monkeypatch, channels_last=True)
    torch.optim.SGD(torch.nn.Linear(3, 2).parameters(), lr=0.1)
    wrapped = torch.nn.DataParallel(torch.nn.Conv2d(3, 8, 3))
    torch.optim.SGD(wrapped.parameters(), lr=0.1)
    assert used == []


SCRIPT = """
import atexit

import torch
from torch.nn.parallel import DistributedDataParallel

class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(4, 1)

    def forward(self, values):
        return self.line(values)

torch.set_num_threads(1)
store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
models = [DistributedDataParallel(Line()), torch.nn.Sequential(torch.nn.Linear(4, 1))]
models += [torch.compile(Line(), backend="eager"), Line()]
optimizer = torch.optim.SGD([weight for model in models[:3] for weight in model.parameters()], lr=0.1)
atexit.register(lambda: print(models[0].bucket_bytes_cap, [bool(model._compiled_call_impl) for model in models]))
while True:
    sum(model(torch.randn(8, 4)).square().mean() for model in models[:3]).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.torch
def test_what_a_script_trains_is_compiled_and_has_other_buckets(tmp_path: Path) -> None:
    """But for what it compiles itself, and what it does not train. The backend calls no C++ compiler."""
    script, control = tmp_path / "train.py", tmp_path / "control"
    script.write_text(SCRIPT)
    control.mkdir()
    timed = TimedRun(12, 5, None, {"compile": {"backend": "eager"}, "bucket_cap_mb": 1})
    Settings(tmp_path, (), timed=timed).save(control / "settings.json")
    command = [sys.executable, str(script)]
    done = subprocess.run(command, env=child_environment(control), capture_output=True, text=True)
    assert done.stdout.split(maxsplit=1) == ["1048576", "[True, True, False, False]\n"], done.stderr
    run = read_run(control)
    assert isinstance(run, MeasuredRun)
    assert run.switches_used == ("bucket_cap_mb", "compile")
