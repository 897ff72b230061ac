"""The step that a run without training steps may name, from stacks of functions of this file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from traceopt.capture.launch.outcome import _no_steps
from traceopt.capture.settings import Settings
from traceopt.capture.start_up.looped_calls import step_among
from traceopt.capture.start_up.stack_sampler import Stack, stack_of
from traceopt.capture.status import Status


class Model:
    def token(self) -> Stack:
        return stack_of(sys._getframe())


def generate(model: Model) -> Stack:
    for _ in range(1):
        stack = model.token()
    return stack


def sentences() -> Stack:
    found = []
    for _ in range(2):
        found.append(generate(Model()))  # noqa: PERF401 - a loop of the program
    return found[0]


def test_the_outermost_function_that_a_loop_calls() -> None:
    here = (sentences(), 0.9), (([], []), 0.1)
    assert step_among(here) == f"{__name__}:generate"


def test_a_method() -> None:
    expected = f"{__name__}:Model.token" if sys.version_info >= (3, 11) else None
    assert step_among([(generate(Model()), 1.0)]) == expected


@pytest.mark.parametrize(
    "stacks",
    [
        pytest.param([], id="nothing was sampled"),
        pytest.param([(sentences(), 0.4), (([], []), 0.6)], id="less than half of the time"),
        pytest.param([(Model().token(), 1.0)], id="no loop"),
    ],
)
def test_none(stacks: list[tuple[Stack, float]]) -> None:
    assert step_among(stacks) is None


@pytest.mark.parametrize(("step", "what"), [("forward", "a model"), ("__main__:Net.decode", "Net.decode()")])
def test_the_reason_names_it(step: str, what: str) -> None:
    reason = _no_steps(Status(looped_step=step), Settings(Path(), ()), None)
    assert f"a loop calls {what} for most of the run: make each call a step with --step-on {step}" in reason
