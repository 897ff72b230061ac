"""Runs of several ranks, generated and analyzed once a process."""

from __future__ import annotations

from typing import Any

import pytest
from support.ranks import GetRun, Run

from fixtures.generate import generate_ranks
from traceopt.api import analyze


@pytest.fixture(scope="session")
def all_ranks(tmp_path_factory: pytest.TempPathFactory) -> GetRun:
    """`all_ranks(scenario, **job)`: the traces of all ranks, and the result of their folder."""
    known: dict[str, Run] = {}

    def get(scenario: str, **options: Any) -> Run:
        key = f"{scenario} {sorted(options.items())}"
        if key not in known:
            folder = tmp_path_factory.mktemp(scenario)
            traces = generate_ranks(scenario, **options)
            for trace in traces:
                trace.write(folder / f"host_{trace.rank}.pt.trace.json")
            known[key] = traces, analyze(str(folder), debug=True)
        return known[key]

    return get
