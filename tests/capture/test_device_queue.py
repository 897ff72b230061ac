"""When the agent waits for the GPU: before and after what it records, and never while a CUDA graph is captured."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from runs import Runner

from traceopt.capture.recording.device_queue import drain

pytestmark = pytest.mark.slow  # each starts processes

STEPS_BEHIND = """
import time, torch
from torch import nn


class Queue:  # a GPU that does the work of a step in 0.2 s, while the host goes on
    busy_until = 0.0

    def synchronize(self, index=None):
        time.sleep(max(0.0, Queue.busy_until - time.perf_counter()))


queue = Queue()
torch.cuda.is_initialized = lambda: True
torch.cuda.is_current_stream_capturing = lambda: False
torch.cuda.device_count, torch.cuda.current_device = (lambda: 1), (lambda: 0)
torch.cuda.synchronize = queue.synchronize
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    Queue.busy_until = max(Queue.busy_until, time.perf_counter()) + 0.2
"""


def device(*, initialized: bool = True, captures: bool = False, waited: list[int] | None = None) -> Any:
    return SimpleNamespace(
        is_initialized=lambda: initialized,
        is_current_stream_capturing=lambda: captures,
        current_device=lambda: 1,
        device_count=lambda: 4,
        synchronize=(waited if waited is not None else []).append,
    )


def test_only_gpus_that_the_process_uses_are_waited_for() -> None:
    """A wait for another one would create a context there."""
    waited: list[int] = []
    with_context = SimpleNamespace(_cuda_hasPrimaryContext=lambda index: index in (1, 3))
    assert drain(SimpleNamespace(cuda=device(waited=waited), _C=with_context)) is not None
    assert waited == [1, 3]


def test_a_torch_that_does_not_tell_waits_for_the_current_gpu() -> None:
    waited: list[int] = []
    assert drain(SimpleNamespace(cuda=device(initialized=False), xpu=device(waited=waited), _C=None)) is not None
    assert waited == [1]


@pytest.mark.parametrize("used", [device(initialized=False), device(captures=True)])
def test_no_wait_without_a_gpu_or_while_a_graph_is_captured(used: Any) -> None:
    assert drain(SimpleNamespace(cuda=used, _C=None)) is None


def test_the_ledger_says_how_far_the_gpu_was_behind(runner: Runner, tmp_path: Path) -> None:
    script = tmp_path / "behind.py"
    script.write_text(STEPS_BEHIND)
    run = runner.run(str(script), options=("--preset", "quick", "--no-analyze"))
    assert run.code == 0, run.stderr
    drains = dict(run.traces[-1].metadata["ledger"]["drains"])
    windows = run.traces[-1].metadata["ledger"]["windows"]
    assert set(drains) == {window[name] for window in windows for name in ("warmup_from", "from", "until")}
    assert drains[windows[0]["until"]] > 200_000, "more than one of the recorded steps is left at the end"
