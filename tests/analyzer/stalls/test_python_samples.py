"""Samples of what a thread runs, and the functions that take time in most steps."""

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
    samples = facts.python_samples(Intervals(starts, starts + lengths))
    assert (samples.each_ns, len(samples)) == (100_000, 110)
    assert samples.area.total == 11_000_000
    per_step_ns, recurring = samples.recurring(facts.steps)
    assert per_step_ns == 2_000_000
    assert {facts.trace.names[code] for code in recurring.function} == {"train.py(3): load"}
    assert recurring.area.total == 8_000_000


def test_an_empty_area() -> None:
    facts = Facts(read([annotation("ProfilerStep#0", 0, 100), python("train.py(3): load", 0, 50)]))
    none = np.empty(0, np.int64)
    assert facts.python_samples(Intervals(none, none)).recurring(facts.steps)[0] == 0.0
