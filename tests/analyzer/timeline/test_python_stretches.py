"""What a thread runs, and the functions that take time in most steps."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.arrays.intervals import Intervals
from traceopt.analyzer.facts import Facts
from traceopt.testing.events import annotation, python, read


def test_functions_that_recur() -> None:
    """`load` takes 2 ms of each step; `wait` takes 3 ms of one step of four."""
    steps = [annotation(f"ProfilerStep#{i}", 10_000 * i, 10_000) for i in range(4)]
    frames = [python("train.py(3): load", 10_000 * i + 1_000, 2_000) for i in range(4)]
    facts = Facts(read([*steps, *frames, python("train.py(9): wait", 15_000, 3_000)]))
    starts = np.array([1_000, 11_000, 15_000, 21_000, 31_000]) * 1_000
    lengths = np.array([2_000, 2_000, 3_000, 2_000, 2_000]) * 1_000
    stretches = facts.python_stretches(Intervals(starts, starts + lengths))
    assert stretches.area.total == 11_000_000
    time_ns, recurring = stretches.recurring(facts.steps)
    assert time_ns.sum() == 2_000_000
    assert {facts.trace.names[code] for code in recurring.function} == {"train.py(3): load"}
    assert recurring.area.total == 8_000_000


def test_a_function_recurs_if_one_step_of_four_does_not_show_it() -> None:
    """A step that is unlike the others borrows no frames from them, and its Python is the loop's."""
    steps = [annotation(f"ProfilerStep#{i}", 10_000 * i, 10_000) for i in range(4)]
    frames = [python("train.py(3): metric", 10_000 * i + 1_000, 2_000) for i in (0, 1, 3)]
    facts = Facts(read([*steps, *frames, python("train.py(9): main", 21_000, 2_000)]))
    starts = np.array([1_000, 11_000, 21_000, 31_000]) * 1_000
    time_ns, recurring = facts.python_stretches(Intervals(starts, starts + 2_000_000)).recurring(facts.steps)
    assert time_ns.sum() == 2_000_000
    assert {facts.trace.names[code] for code in recurring.function} == {"train.py(3): metric"}


def test_time_is_the_innermost_functions_and_adds_up() -> None:
    """100 short calls take 5 us each, and `load` around them the rest; the area ends inside the last of them."""
    calls = [python("<built-in method append of list object>", 1_000 + 20 * i, 5) for i in range(100)]
    facts = Facts(read([annotation("ProfilerStep#0", 0, 10_000), python("train.py(3): load", 1_000, 3_000), *calls]))
    stretches = facts.python_stretches(Intervals(np.array([1_000_000]), np.array([2_982_000])))
    by_name = dict.fromkeys(facts.trace.names, 0)
    for code, length in zip(stretches.function, stretches.length, strict=True):
        by_name[facts.trace.names[code]] += int(length)
    assert by_name["<built-in method append of list object>"] == 99 * 5_000 + 2_000
    assert by_name["train.py(3): load"] == 1_982_000 - 99 * 5_000 - 2_000
    assert stretches.area.total == 1_982_000


def test_an_empty_area() -> None:
    facts = Facts(read([annotation("ProfilerStep#0", 0, 100), python("train.py(3): load", 0, 50)]))
    none = np.empty(0, np.int64)
    assert facts.python_stretches(Intervals(none, none)).recurring(facts.steps)[0].sum() == 0.0


def test_what_traceopt_run_does_in_the_process_is_not_the_programs_work() -> None:
    """Its hooks also call functions of the program, which count."""
    frames = [
        python("train.py(30): main", 0, 10_000),
        python("/x/site-packages/traceopt/capture/recording/event_memory.py(49): _in_use_bytes", 1_000, 2_000),
        python("<built-in function open>", 1_500, 1_000),
        python("/x/site-packages/traceopt/capture/script/hooks.py(9): hooked", 4_000, 3_000),
        python("train.py(3): metric", 4_100, 2_900),
    ]
    facts = Facts(read([annotation("ProfilerStep#0", 0, 10_000), *frames]))
    stretches = facts.python_stretches(Intervals(np.array([1_000_000, 4_000_000]), np.array([3_000_000, 7_000_000])))
    assert {facts.trace.names[code] for code in stretches.function} == {"train.py(3): metric"}
