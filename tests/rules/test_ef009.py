"""EF009: backward nodes that an earlier pass over the same forward pass has run too."""

from __future__ import annotations

import pytest
from support.facts import launched_by, repeated
from support.findings import only

from traceopt.analyzer.facts import Facts
from traceopt.rules.catalogue.ef009_repeated_backward import RepeatedBackward
from traceopt.testing import A100, answer
from traceopt.testing import events as build

STEP_US = 20_000
ENGINE = "<built-in method run_backward of torch._C._EngineBase object at 0x7f>"


def backward_pass(start: float, number: int, *, adds: bool = True, keeps: bool = True) -> list[build.Json]:
    """3 ms of the shared layer, then 1 ms that adds to the gradient of its weights."""
    ran = {"Sequence number": number, "Fwd thread id": 1}
    accumulation = [
        build.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", start + 3_000, 1_000),
        build.op("torch::autograd::AccumulateGrad", start + 3_010, 900),
        build.op("aten::add_" if adds else "aten::detach", start + 3_020, 800),
    ]
    return [
        build.python(f"train.py({20 + round(start / 5_000)}): <module>", start - 200, 4_400),
        build.python(ENGINE, start - 100, 4_200),
        build.op("autograd::engine::evaluate_function: AddmmBackward0", start, 3_000, **ran),
        build.op("AddmmBackward0", start + 10, 2_900, **ran),
        build.op("aten::mm", start + 20, 2_800),
        *accumulation[: 3 if keeps else 1],
    ]


def facts(*parts: list[build.Json], gpu: bool = False) -> Facts:
    """Four steps of these events, whose times count from the start of a step. On a GPU, each product launches a kernel
    that runs for its time. Each step has its own sequence numbers.
    """
    events = repeated([build.annotation("Optimizer.step#SGD.step", 19_000, 500)], *parts, step_us=STEP_US)
    if gpu:
        return Facts(build.read([*events, *launched_by(events, "aten::mm")], deviceProperties=[A100]))
    return Facts(build.read(events))


FIRST = backward_pass(5_000, 7, adds=False)
SECOND = backward_pass(10_000, 7)


def test_fires_on_the_repeated_nodes_at_the_call_of_backward() -> None:
    found = only(RepeatedBackward, facts(FIRST, SECOND))
    assert "take 4.0 ms of each 20.0 ms step" in found.why
    assert found.saving is not None
    assert found.saving.est_us == pytest.approx(4_000, rel=0.1)
    assert [(one.file, one.line) for one in found.locations] == [("train.py", 22)]


def test_on_a_gpu_that_is_busy_the_time_of_the_kernels_is_saved() -> None:
    busy = [build.op("aten::mm", 100, 4_700), build.op("aten::mm", 14_500, 4_400)]
    found = only(RepeatedBackward, facts(busy, FIRST, SECOND, gpu=True))
    assert "take 2.8 ms of each 20.0 ms step" in found.why
    assert found.saving is not None
    assert found.saving.low_us <= 2_800 <= found.saving.high_us


CLEARED = [build.annotation("Optimizer.zero_grad#SGD.zero_grad", 9_500, 100)]
READ = backward_pass(5_000, 7, keeps=False)  # torch.autograd.grad(): the gradients are returned


@pytest.mark.parametrize(
    "parts",
    [
        (FIRST, backward_pass(10_000, 8)),  # another forward pass: gradient accumulation
        (FIRST, CLEARED, SECOND),
        (FIRST, backward_pass(10_000, 7, adds=False)),  # the gradients were taken away in between
        (READ, SECOND),
        (FIRST, backward_pass(10_000, 7, keeps=False)),
        (  # a gradient penalty: gradients are on in the first pass
            [*FIRST, build.op("aten::t", 5_100, 10, **{"Sequence number": 9, "Fwd thread id": 1})],
            SECOND,
        ),
    ],
)
def test_silent_on_passes_that_are_needed(parts: tuple[list[build.Json], ...]) -> None:
    check, findings = answer(RepeatedBackward, facts(*parts))
    assert findings == []
    assert check.reason == "No backward pass repeats the nodes of another."
