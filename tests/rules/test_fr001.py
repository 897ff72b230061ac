"""FR001 missing-rank: let every rank call the collective."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceopt
from fixtures.flight_dumps import FAULTY_RANK, dumps, write


@pytest.mark.parametrize(("fault", "lines"), [("missing", [51, 60]), ("blocked", [60, 50]), ("no_dump", [60])])
def test_fires_on_the_rank_and_the_line(fault: str, lines: list[int], tmp_path: Path) -> None:
    (finding,) = traceopt.analyze(str(write(tmp_path, dumps(8, fault, steps=12)))).findings
    assert (finding.code, finding.ranks) == ("FR001", [FAULTY_RANK])
    assert [place.line for place in finding.locations] == lines


def test_silent_on_a_healthy_job(tmp_path: Path) -> None:
    result = traceopt.analyze(str(write(tmp_path, dumps(8, steps=12))))
    assert [check.status for check in result.checks if check.code == "FR001"] == ["passed"]
