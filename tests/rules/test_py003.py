"""PY003: objects that a training step copies with copy.deepcopy."""

from __future__ import annotations

import pytest
from support.findings import only

from traceopt.analyzer.facts import Facts
from traceopt.rules.catalogue.lb002_launch_bound import LaunchBound
from traceopt.rules.catalogue.py003_deep_copy import DeepCopy
from traceopt.rules.savings.known_error import ERROR_ON_CPU
from traceopt.testing import answer
from traceopt.testing import events as build

STEP_US, STEPS = 10_000, 4
NUMBER = {"Sequence number": 7}


def deep_copy(start: float) -> list[build.Json]:
    """2 ms: 150 small copies of tensors, each in a deepcopy of its own."""
    inner = [
        one
        for n in range(150)
        for one in (
            build.python("copy.py(128): deepcopy", start + 10 + 13 * n, 11),
            build.op("aten::clone", start + 12 + 13 * n, 8),
        )
    ]
    return [
        build.python("train.py(7): smooth", start - 100, 2_200),
        build.python("copy.py(128): deepcopy", start, 2_000),
        *inner,
    ]


def facts(*, copies: range = range(STEPS)) -> Facts:
    events: list[build.Json] = []
    for step in range(STEPS):
        start = step * STEP_US
        events.append(build.annotation(f"ProfilerStep#{step}", start, STEP_US))
        parts = [
            build.python("train.py(30): train", 100, 9_000),
            build.op("aten::mm", 500, 3_000, **NUMBER),
            build.op("autograd::engine::evaluate_function: MmBackward0", 3_600, 2_000),
            build.annotation("Optimizer.step#SGD.step", 5_800, 200),
            *(deep_copy(6_500) if step in copies else []),
        ]
        events += [one | {"ts": one["ts"] + start} for one in parts]
    return Facts(build.read(build.document(events)))


def test_fires_at_the_line_of_the_outermost_call() -> None:
    found = only(DeepCopy, facts())
    assert "takes 2.0 ms of each 10.0 ms step, in 1 call per step" in found.why
    assert found.saving is not None
    assert found.saving.low_us < found.saving.est_us < 2_000
    assert found.saving.high_us == pytest.approx((1 + ERROR_ON_CPU) * found.saving.est_us)
    assert [(one.file, one.function) for one in found.locations] == [("train.py", "smooth")]


def test_its_small_operators_are_no_loop_of_the_user() -> None:
    assert answer(LaunchBound, facts())[1] == []


def test_silent_on_a_copy_of_now_and_then() -> None:
    check, findings = answer(DeepCopy, facts(copies=range(1)))
    assert findings == []
    assert "copy.deepcopy takes" in (check.reason or "")


def test_silent_without_copies() -> None:
    check, findings = answer(DeepCopy, facts(copies=range(0)))
    assert findings == []
    assert check.reason == "The steps do not call copy.deepcopy."
