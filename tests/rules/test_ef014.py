"""EF014: operators that only compute values which the host reads on the same line."""

from __future__ import annotations

import pytest
from support.facts import launched_by, repeated
from support.findings import only

from traceopt.analyzer.facts import Facts
from traceopt.rules.catalogue.ef014_values_for_the_log import ValuesForTheLog
from traceopt.testing import A100, answer
from traceopt.testing import events as build

STEP_US = 20_000
LINE = "called at line"  # of an event of the test: becomes a row of `call_lines`


def line(number: int, start: float, *ops: build.Json) -> list[build.Json]:
    """Calls of one line of the user's function."""
    calls = [build.python("<built-in method of Tensor>", op["ts"], op["dur"]) | {LINE: number} for op in ops]
    end = max(op["ts"] + op["dur"] for op in ops)
    return [build.python("train.py(1): train", start, end - start + 20), *calls, *ops]


def op(name: str, start: float, duration: float, node: int) -> build.Json:
    """`node`: the next free sequence number of autograd when the operator begins."""
    return build.op(f"aten::{name}", start, duration, **{"Sequence number": node, "Fwd thread id": 0})


STATISTICS = line(5, 1_000, op("std", 1_010, 2_000, 7), op("item", 3_020, 10, 7), op("quantile", 3_040, 3_000, 7))
FORWARD = line(9, 8_000, op("mul", 8_010, 1_000, 7), op("relu", 9_020, 1_000, 8), op("mm", 10_100, 1_000, 9))
BACKWARD = [
    build.op("autograd::engine::evaluate_function: MulBackward0", 12_000, 3_000, **{"Sequence number": 7}),
    build.annotation("Optimizer.step#SGD.step", 16_000, 2_000),
]


def facts(*parts: list[build.Json], gpu: bool = False, lines: bool = True) -> Facts:
    events = repeated(*parts, BACKWARD, step_us=STEP_US)
    if gpu:
        events += launched_by(events, "aten::std", "aten::quantile", "aten::mm", kernel_name="reduce_kernel")
    events.sort(key=lambda one: (one["ts"], -one["dur"]))
    called = [one.pop(LINE, 0) for one in events if one["cat"] == "python_function"]
    rows = [row for row, number in enumerate(called) if number]
    calls = {"count": len(called), "rows": rows, "lines": [called[row] for row in rows]}
    metadata = ({"deviceProperties": [A100]} if gpu else {}) | ({"traceopt": {"call_lines": calls}} if lines else {})
    return Facts(build.read(build.document(events, **metadata)))


def silent(*parts: list[build.Json], lines: bool = True) -> str:
    check, findings = answer(ValuesForTheLog, facts(*parts, lines=lines))
    assert findings == []
    return check.reason or ""


@pytest.mark.parametrize("gpu", [False, True])
def test_fires_on_statistics_of_a_line(gpu: bool) -> None:
    found = only(ValuesForTheLog, facts(STATISTICS, FORWARD, gpu=gpu))
    assert "take 5.0 ms of each 20.0 ms step: quantile, std." in found.why
    assert [(one.file, one.line) for one in found.locations] == [("train.py", 5)]
    assert found.saving is None  # only the author knows whether each step needs them
    assert found.confidence == "low"


def test_silent_on_a_line_that_decides_what_runs_next() -> None:
    """As of the mining of triplets: `if d_ap < (x - y).square().sum() < d_ap + margin`."""
    mined = line(5, 1_000, op("sum", 1_010, 4_000, 7), op("item", 5_020, 10, 7), op("is_nonzero", 5_100, 10, 7))
    assert silent(mined, FORWARD) == "Operators whose values are only read take 0 ms of the step."


def test_silent_on_a_line_with_a_gradient_or_a_layer() -> None:
    """A loss that is also printed, and a model that is evaluated."""
    loss = line(5, 1_000, op("mul", 1_010, 4_000, 7), op("mean", 5_020, 1_000, 8), op("item", 6_100, 10, 9))
    assert silent(loss, FORWARD) == "Operators whose values are only read take 0 ms of the step."
    layer = line(5, 1_000, op("mm", 1_010, 4_000, 7), op("argmax", 5_020, 1_000, 7), op("item", 6_100, 10, 7))
    assert silent(layer, FORWARD) == "Operators whose values are only read take 0 ms of the step."


def test_a_line_that_reads_nothing_is_silent() -> None:
    noise = line(5, 1_000, op("randn", 1_010, 4_000, 7), op("clamp", 5_020, 1_000, 7))
    assert silent(noise, FORWARD) == "Operators whose values are only read take 0 ms of the step."


def test_the_optimizers_own_reads_are_silent() -> None:
    inside = line(5, 16_100, op("sqrt", 16_110, 1_500, 7), op("item", 17_650, 10, 7))
    assert silent(FORWARD, inside) == "Operators whose values are only read take 0 ms of the step."


def test_little_time_is_silent() -> None:
    little = line(5, 1_000, op("std", 1_010, 300, 7), op("item", 1_320, 10, 7))
    assert silent(little, FORWARD) == "Operators whose values are only read take 0.30 ms of the step."


def test_silent_about_the_data_set() -> None:
    """A random index, or a crop that depends on the values of an item."""
    item = build.python("data.py(3): __getitem__", 990, 6_200)
    assert silent([item, *STATISTICS], FORWARD) == "Operators whose values are only read take 0 ms of the step."


def test_silent_where_only_the_function_is_known() -> None:
    """Without the lines of calls, a frame has the line where its function begins, whatever the function does."""
    assert silent(STATISTICS, lines=False) == "Operators whose values are only read take 0 ms of the step."


def test_silent_about_a_line_that_changes_tensors_or_communicates() -> None:
    """Clipping needs the norms that are also read, and other ranks need their part of a sum."""
    for effect in (op("mul_", 4_020, 1_000, 7), build.op("c10d::allreduce_", 4_020, 1_000)):
        clip = line(5, 1_000, op("linalg_vector_norm", 1_010, 3_000, 7), effect, op("item", 5_100, 10, 7))
        assert silent(clip, FORWARD) == "Operators whose values are only read take 0 ms of the step."


def test_copies_are_no_values_for_the_log() -> None:
    copy = line(5, 1_000, op("to", 1_010, 4_000, 7), op("item", 5_100, 10, 7))
    assert silent(copy, FORWARD) == "Operators whose values are only read take 0 ms of the step."
