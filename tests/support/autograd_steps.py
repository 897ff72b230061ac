"""Equal steps of training whose operators have shapes, arguments and backward nodes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import pytest
from support.facts import repeated

from traceopt.analyzer.facts import Facts
from traceopt.result.finding import Finding
from traceopt.rules.rule import Rule
from traceopt.testing import A100, answer
from traceopt.testing import events as build

STEP_US = 20_000
EVALUATION = "autograd::engine::evaluate_function: "
ENGINE = "<built-in method run_backward of torch._C._EngineBase object at 0x7f00>"

Event = build.Json
Shape = Sequence[int]


def operator(
    name: str, start: float, duration: float, *dims: Any, arguments: Sequence[str] = (), number: int | None = None
) -> Event:
    """An operator of the forward pass. `number`: autograd's, if gradients are on."""
    recorded = {} if number is None else {"Sequence number": number, "Fwd thread id": 0}
    inputs = {"Input Dims": list(dims), "Input type": ["float"] * len(dims), "Concrete Inputs": list(arguments)}
    return build.op(name, start, duration, **inputs, **recorded)


def node(name: str, start: float, duration: float, number: int, *dims: Any) -> list[Event]:
    """A backward node and its evaluation, which begins a microsecond earlier."""
    recorded = {"Sequence number": number, "Fwd thread id": 1}
    return [
        build.op(f"{EVALUATION}{name}", start, duration, **recorded),
        build.op(name, start + 1, duration - 2, **{"Input Dims": list(dims)}, **recorded),
    ]


def accumulation(start: float, shape: Shape) -> list[Event]:
    """A gradient of this shape is added to that of its parameter."""
    name = "torch::autograd::AccumulateGrad"
    return [build.op(f"{EVALUATION}{name}", start, 20), build.op(name, start + 1, 15, **{"Input Dims": [list(shape)]})]


def steps(
    *parts: list[Event], update: Sequence[Event] = (), optimizer: str = "SGD", gpu: bool = False, **metadata: Any
) -> Facts:
    """Times count from the start of a step. `update`: the operators of the optimizer, from 16 to 18 ms. `gpu`: they
    launch kernels that run for their time.
    """
    updates = build.annotation(f"Optimizer.step#{optimizer}.step", 16_000, 2_000)
    events = repeated([updates], *parts, update, step_us=STEP_US)
    if gpu:
        return Facts(build.read(build.document([*events, *_kernels(events)], deviceProperties=[A100], **metadata)))
    return Facts(build.read(build.document(events, **metadata)))


def _kernels(events: list[Event]) -> list[Event]:
    launched = [one for one in events if one["name"].startswith("aten::") or one["name"].endswith("Backward0")]
    launched = [one for one in launched if not one["name"].startswith(EVALUATION)]
    starts = sorted(one["ts"] for one in launched)
    inner = (bisect_left(starts, one["ts"] + one["dur"]) - bisect_right(starts, one["ts"]) for one in launched)
    launched = [
        one for one, calls in zip(launched, inner, strict=True) if not calls
    ]  # others launch nothing themselves
    return [
        made
        for number, one in enumerate(launched, 1)
        for made in (
            build.runtime("cudaLaunchKernel", one["ts"] + 0.2, 0.5, number),
            build.kernel("elementwise_kernel", one["ts"] + 0.8, one["dur"] - 1, number),
        )
    ]


def the(rule: type[Rule], facts: Facts) -> Finding:
    check, findings = answer(rule, facts)
    return findings[0] if findings else pytest.fail(check.reason or "")


def is_silent(rule: type[Rule], facts: Facts) -> bool:
    check, _ = answer(rule, facts)
    return check.status in ("passed", "not_applicable")
