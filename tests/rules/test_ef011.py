"""EF011: a recurrent layer that runs on one sequence after the other."""

from __future__ import annotations

from typing import Any

import pytest

from traceopt.analyzer.facts import Facts
from traceopt.rules.catalogue.ef011_recurrent_cell_loop import RecurrentCellLoop
from traceopt.testing import answer
from traceopt.testing import events as build

STEP_US, STEPS, CALLS = 20_000, 4, 20
WEIGHTS = [[192, 64], [192, 64], [192], [192]]


def layer(size: list[int], batch_first: bool = True) -> dict[str, Any]:
    """The arguments of nn.GRU as the profiler records them."""
    return {
        "Input Dims": [size, [1, 1, 64], WEIGHTS, [], [], [], [], [], []],
        "Concrete Inputs": ["", "", "", "True", "1", "0.", "True", "False", str(batch_first)],
    }


PACKED = {
    "Input Dims": [[340, 64], [24], [1, 48, 64], WEIGHTS, [], [], [], [], []],
    "Concrete Inputs": ["", "", "", "", "True", "1", "0.", "True", "False"],
}


def facts(
    arguments: dict[str, Any], *, calls: int = CALLS, name: str = "aten::gru", lines: tuple[int, ...] = (7,)
) -> Facts:
    """Each call takes 100 us forward and 200 us backward."""
    events: list[build.Json] = []
    for step in range(STEPS):
        start = step * STEP_US
        events.append(build.annotation(f"ProfilerStep#{step}", start, STEP_US))
        for part, line in enumerate(lines):
            took = 150 * calls / len(lines)
            events.append(build.python(f"train.py({line}): encode", start + 5 + took * part, took))
        events.append(build.annotation("Optimizer.step#SGD.step", start + 19_000, 500))
        for call in range(calls):
            number = {"Sequence number": 1_000 * step + call}
            events += [
                build.op(name, start + 10 + 150 * call, 100, **number | {"Fwd thread id": 0}, **arguments),
                build.op(
                    "autograd::engine::evaluate_function: AddmmBackward0",
                    start + 8_100 + 300 * call,
                    200,
                    **number | {"Fwd thread id": 1},
                ),
            ]
    return Facts(build.read(build.document(events)))


@pytest.mark.parametrize(
    "found",
    [
        facts(layer([1, 24, 64])),
        facts(layer([24, 1, 64], batch_first=False)),
        facts(layer([1, 24, 64]), name="aten::lstm"),
    ],
    ids=["batch first", "time first", "lstm"],
)
def test_fires_on_single_sequences_at_their_forward_and_backward(found: Facts) -> None:
    check, findings = answer(RecurrentCellLoop, found)
    [one] = findings or pytest.fail(check.reason or "")
    assert "runs 20 times per step, each time on one sequence" in one.why
    assert "this line takes 6.0 ms of each 20.0 ms step" in one.why
    assert [(place.file, place.line) for place in one.locations] == [("train.py", 7)]
    assert one.saving is not None
    assert one.saving.low_us < one.saving.est_us == pytest.approx(4_800, rel=0.02)


@pytest.mark.parametrize(
    "arguments",
    [
        layer([48, 24, 64]),
        layer([1, 1, 64]),
        layer([1, 48, 64], batch_first=False),  # a time step of 48 sequences
        layer([24, 64]),
        PACKED,
        {},
        {"Input Dims": [[1, 24, 64]]},
        {"Input Dims": "[", "Concrete Inputs": 3},
        {"Input Dims": [[1, "many", 64]], "Concrete Inputs": ["True"]},
        {"Input Dims": [[1, 24, 64]], "Concrete Inputs": [["True"]]},
    ],
    ids=[
        "a batch",
        "one step",
        "a step of a batch",
        "no batch",
        "packed",
        "no shapes",
        "no values",
        *map(str, range(3)),
    ],
)
def test_silent_on_other_calls(arguments: dict[str, Any]) -> None:
    check, findings = answer(RecurrentCellLoop, facts(arguments))
    assert findings == []
    assert check.status != "error"


def test_silent_on_a_few_calls() -> None:
    """As of stacked layers in a list."""
    check, findings = answer(RecurrentCellLoop, facts(layer([1, 24, 64]), calls=6))
    assert findings == []
    assert "recurrent layers get a single sequence 6 times" in check.reason


def test_calls_of_one_function_are_one_finding() -> None:
    """As of stacked cells in one loop."""
    [one] = answer(RecurrentCellLoop, facts(layer([1, 24, 64]), lines=(7, 8)))[1]
    assert "runs 20 times per step" in one.why
    assert "these 2 lines take 6.0 ms of each 20.0 ms step" in one.why
    assert [place.line for place in one.locations] == [7, 8]
