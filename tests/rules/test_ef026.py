"""EF026: sorts whose result is cut to its first values."""

from __future__ import annotations

import pytest
from support.autograd_steps import Event, is_silent, operator, steps, the

from traceopt.rules.catalogue.ef026_full_sort import FullSort
from traceopt.rules.savings.known_error import ERROR_ON_CPU
from traceopt.testing import events as build

SHAPE = [64, 30_000]


def sorting(name: str, *cut: str, arguments: tuple[str, ...] = ("", "1", "True")) -> list[Event]:
    """A sort of 8 ms, and the operator after it."""
    return [
        build.python("train.py(9): nearest", 0, 9_000),
        operator(name, 10, 8_000, SHAPE, arguments=arguments),
        operator("aten::arange", 20, 10),
        operator("aten::slice", 8_020, 10, SHAPE, arguments=("", *cut)),
    ]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(sorting("aten::argsort", "1", "0", "20", "1"), id="argsort"),
        pytest.param(sorting("aten::sort", "-1", "", "20", "1", arguments=("", "-1", "False")), id="sort"),
        pytest.param(sorting("aten::sort", "1", "0", "20", "1", arguments=("", "True", "1", "True")), id="stable"),
    ],
)
def test_fires_where_the_first_values_are_taken(events: list[Event]) -> None:
    found = the(FullSort, steps(events))
    assert found.why.endswith("what follows them takes only the first values: 20 of 30,000.")
    assert [(one.file, one.line) for one in found.locations] == [("train.py", 9)]
    assert found.saving is not None
    assert found.saving.low_us < found.saving.est_us < found.saving.high_us <= (1 + ERROR_ON_CPU) * 8_000


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(sorting("aten::argsort", "1", "0", "20000", "1"), id="most of them"),
        pytest.param(sorting("aten::argsort", "0", "0", "4", "1"), id="another dimension"),
        pytest.param(sorting("aten::argsort", "1", "100", "120", "1"), id="from the middle"),
        pytest.param(sorting("aten::argsort", "1", "0", "-1", "1"), id="all but the last"),
        pytest.param(sorting("aten::argsort", "one", "0", "20", "1"), id="unreadable"),
        pytest.param(sorting("aten::argsort", "1", "0", "20", "1")[:3], id="not cut"),
    ],
)
def test_silent_on_other_sorts(events: list[Event]) -> None:
    assert is_silent(FullSort, steps(events))
