"""Replayed without a change, real traces reproduce their steps; where they do not, the trace itself is the reason."""

from __future__ import annotations

import pytest

from fixtures.real_traces import TRACES, expected
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.source_search import find_sources
from traceopt.analyzer.reading.trace_reader import read_trace

WITH_GPU_WORK = [file for file, truth in expected().items() if truth["figures"].get("gpu_busy_us")]
BOUND, GOAL = 0.05, 0.02
# Part of the device's work is missing in these files, so other work seems to start late without a reason.
INCOMPLETE = {"sampled_rank-0": "a sample of the events", "sampled_rank-1": "a sample of the events"}

pytestmark = pytest.mark.real_traces


@pytest.mark.parametrize("file", WITH_GPU_WORK)
def test_no_change_gives_the_steps_back(file: str) -> None:
    (source,) = find_sources([str(TRACES / file)]).sources
    with source.open() as stream:
        facts = Facts(read_trace(stream, source.label))
    error = facts.replay_error
    assert error is not None
    if any(part in file for part in INCOMPLETE):
        assert error.unexplained_share > BOUND
        assert not facts.replay_trusted
    else:
        assert error.missed_share <= GOAL
        assert facts.replay_trusted
