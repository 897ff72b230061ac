"""`traceopt.profile`, for scripts that say themselves where a step ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from runs import Trace

import traceopt


def train(steps: int, profiler: traceopt.profile) -> None:
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).pow(2).mean().backward()
        optimizer.step()
        profiler.step()


def test_the_steps_that_were_asked_for_are_recorded(tmp_path: Path) -> None:
    with traceopt.profile(tmp_path, wait=0, warmup=0, active=3, with_stack=True) as profiler:
        train(6, profiler)
    [path] = profiler.traces
    trace = Trace(path)
    assert {step: work["update"] for step, work in trace.steps.items()} == {0: 1, 1: 1, 2: 1}
    assert trace.metadata["step_rule"] == "given"
    assert len(trace.metadata["ledger"]["step_us"]) == 6
    assert any(optimizer["class"] == "torch.optim.sgd.SGD" for optimizer in trace.metadata["optimizers"])


def test_by_default_there_are_two_cycles(tmp_path: Path) -> None:
    with traceopt.profile(tmp_path, "quick") as profiler:
        train(10, profiler)
    assert [Trace(path).cycle for path in profiler.traces] == ["timing", "detail"]


def test_an_exception_passes_through_and_the_trace_is_kept(tmp_path: Path) -> None:
    profiler = traceopt.profile(tmp_path, "quick")

    def fail() -> None:
        with profiler:
            train(4, profiler)
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        fail()
    assert list(Trace(profiler.traces[0]).steps) == [2, 3]


def test_too_few_steps_are_said_so(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="recorded nothing: steps ended 2"), traceopt.profile(tmp_path) as profiler:
        train(2, profiler)
    assert not profiler.traces
