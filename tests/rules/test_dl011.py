"""DL011: the data set opens the same file again for each item."""

from __future__ import annotations

from typing import Any

import pytest
from support.cpu_steps import STEPS, Events, cpu_answer

from traceopt.testing import events as build

LINE = 13


def step(t: float, _: int) -> Events:
    yield build.python("torch/utils/data/dataloader.py(720): __next__", t, 5_000)
    yield build.python("data.py(7): __getitem__", t + 100, 4_600)
    yield build.python("numpy/lib/_npyio_impl.py(300): load", t + 300, 4_000)
    yield build.op("aten::mm", t + 6_000, 3_000)


def answer(opens: int = 128, files: int = 4, line: int = LINE) -> tuple[Any, Any]:
    opened = {"file": "data.py", "line": line, "function": "__getitem__", "opens": opens, "files": files, "batches": 4}
    rows = list(range(3, 4 * STEPS, 4))  # the calls of load, the last of four Python events in a step
    lines = {"count": 4 * STEPS, "rows": rows, "lines": [LINE] * len(rows)}
    return cpu_answer("DL011", step, traceopt={"call_lines": lines, "opened_files": [opened]})


def test_fires_on_the_line_that_reads_the_file_for_each_item() -> None:
    _, [found] = answer()
    assert found.why.startswith("For a batch, the data set opens 1 file 32 times.")
    assert "take 4.0 ms of each" in found.why
    assert [str(place) for place in found.locations] == [f"data.py:{LINE}"]
    assert found.saving.est_us == pytest.approx(0.95 * 4_000, rel=0.01)
    assert found.saving.low_us <= 0.5 * 4_000


@pytest.mark.parametrize(
    "opened",
    [
        pytest.param({"files": 128}, id="a file for each item"),
        pytest.param({"files": 64}, id="each file for two items"),
        pytest.param({"line": 99}, id="a line that takes no time"),
    ],
)
def test_silent_where_the_files_differ_or_take_no_time(opened: dict[str, int]) -> None:
    assert answer(**opened)[1] == []
