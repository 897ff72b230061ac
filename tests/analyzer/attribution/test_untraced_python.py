"""Untraced Python: long stretches inside one Python frame without any event, while the GPU starves."""

from __future__ import annotations

import pytest
from support.facts import facts_of
from support.traces import GetExample

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.vocabulary.causes.table import UNTRACED_PYTHON
from traceopt.testing import Machine
from traceopt.testing.events import Json, annotation, kernel, op, python, read, runtime

LAUNCHES = [
    runtime("cudaLaunchKernel", 90, 5, 1),
    kernel("gemm", 100, 100, 1),
    runtime("cudaLaunchKernel", 8_000, 5, 2),
    kernel("gemm", 8_010, 100, 2),
]


def around_launches(*events: Json) -> Facts:
    return facts_of(*LAUNCHES, *events, step_us=10_000)


def stretches(*events: Json) -> list[tuple[int, int, str]]:
    facts = around_launches(*events)
    found = facts.untraced_python
    where = [facts.trace.names[facts.slices.name[row]] for row in found.slice]
    return list(zip(found.start.tolist(), found.end.tolist(), where, strict=True))


def test_a_stretch_of_a_frame_without_events() -> None:
    step = python("train.py(3): step", 50, 9_000)
    inner = python("train.py(9): inner", 300, 100)
    assert (400_000, 8_000_000, "train.py(3): step") in stretches(step, inner)
    facts = around_launches(step, inner)
    assert facts.idle.total_ns(UNTRACED_PYTHON) >= 7_600_000


def test_other_events_fill_it() -> None:
    """Calls every half a millisecond show that Python is working."""
    calls = [python("<built-in method append>", 200 + 500 * i, 100) for i in range(16)]
    found = stretches(python("train.py(3): step", 50, 8_060), *calls)
    assert found == []


@pytest.mark.parametrize(
    "around",
    [
        [op("aten::mm", 50, 9_000)],  # an operator's own time is not the garbage collector's
        [python("<built-in method sort of list object>", 50, 9_000)],  # the builtin itself works
        [],  # nothing was traced: the thread may be anywhere
    ],
)
def test_what_is_no_such_stretch(around: list[Json]) -> None:
    facts = around_launches(*around)
    inside = (facts.untraced_python.start >= 200_000) & (facts.untraced_python.end <= 8_010_000)
    assert not inside.any()


def test_short_gaps_have_none() -> None:
    events = [
        annotation("ProfilerStep#0", 0, 1_000),
        python("train.py(3): step", 0, 1_000),
        runtime("cudaLaunchKernel", 5, 5, 1),
        kernel("gemm", 10, 100, 1),
        runtime("cudaLaunchKernel", 900, 5, 2),
        kernel("gemm", 910, 90, 2),
    ]
    assert len(Facts(read(events)).untraced_python) == 0


def test_the_planted_pause(example: GetExample) -> None:
    facts = example("gc_pause").facts
    per_step = facts.idle.typical_ns(UNTRACED_PYTHON)
    planted = example("gc_pause").planted.cost_us * 1e3
    assert per_step == pytest.approx(planted, rel=0.10)
    assert example("gc_pause", fixed=True).facts.idle.typical_ns(UNTRACED_PYTHON) == 0


@pytest.mark.parametrize(("silent", "expected"), [(2, 0), (1, 4)])
def test_a_function_that_is_silent_in_each_of_its_calls_computes(silent: int, expected: int) -> None:
    """Four steps call it twice. The garbage collector does not run in the same function again and again."""
    machine = Machine()
    for _ in range(4):
        with machine.step(), machine.python("train.py(3): step"):
            for call in range(2):
                with machine.python("walker.py(77): move"):
                    machine.idle(2_000 if call < silent else 10)
                machine.launch(100)
                machine.synchronize()
    assert len(machine.facts().untraced_python) == expected
