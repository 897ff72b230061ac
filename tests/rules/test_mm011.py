"""MM011 allocation-retries: avoid allocations that empty the cache."""

from __future__ import annotations

from pathlib import Path

from support.findings import of_code

import traceopt
from fixtures.memory_snapshots import training


def test_fires_on_allocations_that_empty_the_cache(tmp_path: Path) -> None:
    result = traceopt.analyze(str(training("retries").write(tmp_path / "snapshot.pickle")))
    (finding,) = of_code(result.findings, "MM011")
    assert "allocations succeeded only after the allocator had given" in finding.why


def test_silent_where_the_cache_is_kept(tmp_path: Path) -> None:
    result = traceopt.analyze(str(training().write(tmp_path / "snapshot.pickle")))
    assert [check.status for check in result.checks if check.code == "MM011"] == ["passed"]
