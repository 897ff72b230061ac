"""No fix saves more, even at best, than the time of the work that it changes, but for the known error of predictions:
over all rules and traces.
"""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fixtures.real_traces import TRACES, expected, public
from fixtures.scenarios import SCENARIOS
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.replay.changes import RemoveHost, ScaleWork
from traceopt.rules.engine import prepare, run_rules
from traceopt.rules.registry import load_rules
from traceopt.rules.savings.known_error import GAIN_ERROR
from traceopt.rules.savings.starvation import launched_ns

if TYPE_CHECKING:
    from conftest import GetExample

    from traceopt.rules.savings.price import Priced

RULES = prepare(load_rules())
SLACK = 1.02  # the replayed step differs from the measured one
LEGACY = "pl_0trace.json.gz"  # of the legacy autograd profiler
REAL = [
    *(file for file, truth in expected().items() if all(seen["kind"] != "not_a_trace" for seen in truth["present"])),
    *(f"public/{name}" for name in public() if name.endswith(".gz") and name != LEGACY),
]


def changed_ns(one: Priced, facts: Facts) -> float | None:
    """Time per step that the best changes take away; None if they do something else."""
    if not one.best or not all(isinstance(change, ScaleWork | RemoveHost) for change in one.best):
        return None
    total = 0.0
    for change in one.best:
        if isinstance(change, RemoveHost):
            total += change.share * max(facts.steps.host_mean_ns(change.area), facts.steps.mean_ns(change.area))
        elif isinstance(change, ScaleWork):
            gone = change.work * np.maximum(1 - np.broadcast_to(change.factor, change.work.shape), 0.0)
            total += max(float((facts.gpu.in_window * gone).sum()) / facts.steps.count, launched_ns(facts, gone))
    return total


def check(facts: Facts) -> None:
    for one in run_rules(RULES, facts, debug=True).priced:
        most_ns, saving = changed_ns(one, facts), one.finding.saving
        if most_ns is not None and saving is not None:
            assert saving.est_us * 1e3 <= SLACK * most_ns + 1e3, (one.finding.code, saving, most_ns)
            assert saving.high_us * 1e3 <= (1 + GAIN_ERROR) * SLACK * most_ns + 1e3, (one.finding.code, saving, most_ns)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_of_a_planted_fault(example: GetExample, scenario: str) -> None:
    check(example(scenario).facts)


@pytest.mark.real_traces
@pytest.mark.parametrize("file", REAL)
def test_of_a_real_trace(file: str) -> None:
    with gzip.open(TRACES / file) as stream:
        check(Facts(read_trace(stream, file)))
