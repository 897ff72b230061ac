"""PY007: library functions that are slow in loops."""

from __future__ import annotations

import pytest
from support.autograd_steps import Event, is_silent, operator, steps, the

from traceopt.result.words.effort_and_risk import Risk
from traceopt.rules.catalogue.py007_slow_function import SlowFunctionRule
from traceopt.rules.savings.known_error import ERROR_ON_CPU
from traceopt.testing import events as build

ROW = "pandas/core/indexing.py(1327): __getitem__"
SAMPLE, DRAW = "random.py(385): sample", "random.py(245): _randbelow_with_getrandbits"
MODULE = "torch/nn/modules/module.py(476): __init__"
CAST = "torch/nn/modules/module.py(1191): double"


def calls(name: str, count: int, each_us: float) -> list[Event]:
    called = [build.python(name, 100 + at * (each_us + 1), each_us) for at in range(count)]
    return [build.python("train.py(9): batch", 0, 12_000), *called, operator("aten::mm", 13_000, 2_000, [8, 8], [8, 8])]


def constructed(owner: str, base: str) -> list[Event]:
    """A module of 4 ms, whose constructor calls that of a class which is one level deeper."""
    inner = [build.python("features.py(30): __init__", 102, 3_900), build.python(base, 103, 20)]
    return [*calls(owner, 1, 4_000), *inner]


def sample(draws: int, each_us: float) -> list[Event]:
    drawn = [build.python(DRAW, 101 + at * each_us, 0.5) for at in range(draws)]
    return [*calls(SAMPLE, 1, draws * each_us + 2), *drawn]


@pytest.mark.parametrize(
    ("events", "title", "ms"),
    [
        pytest.param(calls(ROW, 64, 60), "Read rows from NumPy arrays instead of pandas", 3.84, id="iloc"),
        pytest.param(
            calls("pandas/core/frame.py(1539): iterrows", 64, 60),
            "Read rows from NumPy arrays instead of pandas",
            3.84,
            id="iterrows",
        ),
        pytest.param(
            [*calls(ROW, 64, 60), build.python("pandas/core/base.py(601): to_numpy", 5_000, 1_000)],
            "Read rows from NumPy arrays instead of pandas",
            4.84,
            id="what is done with the rows",
        ),
        pytest.param(
            calls("pandas/core/frame.py(4283): __getitem__", 64, 60),
            "Read rows from NumPy arrays instead of pandas",
            3.84,
            id="a selection",
        ),
        pytest.param(sample(200, 20), "Sample from a list instead of a deque", 4.0, id="a deque"),
        pytest.param(calls(CAST, 2, 2_000), "Cast or move the model once, not in each step", 4.0, id="a cast"),
        pytest.param(
            constructed("features.py(12): __init__", MODULE),
            "Construct modules once, not in each step",
            4.0,
            id="a module is constructed",
        ),
    ],
)
def test_fires_on_the_function_with_its_line_and_time(events: list[Event], title: str, ms: float) -> None:
    found = the(SlowFunctionRule, steps(events))
    assert found.title == title
    assert found.saving is not None
    assert found.saving.low_us < 0.9 * ms * 1e3 < found.saving.high_us < (1 + ERROR_ON_CPU) * ms * 1e3
    assert [(one.file, one.line) for one in found.locations] == [("train.py", 9)]
    assert found.shares_cause_with == ["LB006"]


def test_a_cast_and_back_rounds_the_weights() -> None:
    assert the(SlowFunctionRule, steps(calls(CAST, 2, 2_000))).risk == Risk.NUMERICS


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(calls(ROW, 1, 4_000), id="all rows of a batch at once"),
        pytest.param(calls(ROW, 64, 5), id="little of the step"),
        pytest.param(sample(2_000, 1), id="a list"),
        pytest.param(calls(SAMPLE, 1, 4_000), id="a sample of unknown size"),
        pytest.param(calls("train.py(20): sample", 64, 60), id="a function of the script"),
        pytest.param(calls("torch/nn/modules/module.py(1782): _call_impl", 2, 2_000), id="a call of a module"),
        pytest.param(constructed("features.py(12): __init__", "features.py(50): check"), id="an object, no module"),
        pytest.param([*calls("data.py(12): read", 1, 4_000), build.python(MODULE, 200, 20)], id="a cheap module"),
    ],
)
def test_silent_on_calls_that_are_fast(events: list[Event]) -> None:
    assert is_silent(SlowFunctionRule, steps(events))
